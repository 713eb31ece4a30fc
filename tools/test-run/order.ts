/**
 * In which order test files run: those that take longest first, so that no long one is left alone at the end. The figures are rough, in
 * seconds, from a run with `--verbose`; a file that none of them names is short.
 */
const seconds: readonly (readonly [path: RegExp, seconds: number])[] = [
  [/conformance\/(src|dist)\/broker\/kafka\./, 200],
  [/conformance\/(src|dist)\/broker\//, 90],
  [/examples\/flights\//, 90],
  [/conformance\/(src|dist)\/client\./, 60],
  [/\/simulation\.test\./, 50],
  [/servers\/(src|dist)\/kafka\./, 50],
  [/conformance\/(src|dist)\/foreign\/kafka\./, 45],
  [/conformance\/(src|dist)\/(crash|chaos|spool)\//, 30],
  [/conformance\/(src|dist)\/kafka/, 30],
  [/\/(failover|group-faults|published)\.test\./, 25],
  [/conformance\/(src|dist)\//, 15],
  [/\/(groups-kafka|java-group|membership-process|kafka)\.test\./, 15],
]

/** The files, the longest first; those of one length keep their order. */
export function longestFirst(files: readonly string[]): string[] {
  return files.toSorted((a, b) => weight(b) - weight(a))
}

function weight(path: string): number {
  return seconds.find(([pattern]) => pattern.test(path))?.[1] ?? 0
}
