/** Reads what `strace -f -y -xx` wrote into the events that decide what a disk holds. */

/**
 * What a process did to the disk, in the order in which the calls came back (a mark: in which they were made). `since` of a sync is the
 * number of events that had come back when it was called: it makes those certain, and no later ones.
 */
export type TraceEvent =
  | { readonly kind: "create"; readonly path: string; readonly truncate: boolean }
  | { readonly kind: "mkdir"; readonly path: string }
  | { readonly kind: "write"; readonly path: string; readonly offset: number; readonly data: Uint8Array }
  | { readonly kind: "resize"; readonly path: string; readonly size: number; readonly shrink: boolean }
  | { readonly kind: "sync"; readonly path: string; readonly since: number }
  | { readonly kind: "remove"; readonly path: string }
  | { readonly kind: "rename"; readonly path: string; readonly to: string }
  /** What the process wrote to its standard output. */
  | { readonly kind: "mark"; readonly text: string }

/** The calls to trace. */
const tracedCalls: string =
  "open,openat,creat,close,write,writev,pwrite64,pwritev,pwritev2,lseek,fsync,fdatasync,ftruncate,truncate,fallocate," +
  "unlink,unlinkat,rmdir,rename,renameat,renameat2,mkdir,mkdirat,dup,dup2,dup3"

/** The arguments of strace that give a trace which `parseTrace` reads. Strings up to `maxWriteBytes` are kept whole. */
export function straceArguments(output: string, maxWriteBytes: number): string[] {
  return ["-f", "--seccomp-bpf", "-y", "-xx", "-s", String(maxWriteBytes), "-o", output, "-e", `trace=${tracedCalls}`]
}

/**
 * @param options.root only files in this directory count; the rest is left out.
 * @throws Error when a traced string was cut short, or a call of a kind that is not understood changed a file of the directory.
 */
export function parseTrace(text: string, options: { readonly root: string }): TraceEvent[] {
  const parser = new TraceParser(options.root)
  for (const line of text.split("\n")) parser.line(line)
  return parser.events
}

class TraceParser {
  readonly events: TraceEvent[] = []
  readonly #root: string
  /** The first half of a call that another thread's line came between, and the events there were by then. */
  readonly #unfinished = new Map<string, { text: string; since: number }>()
  /** The position of each file descriptor, for calls that write there. */
  readonly #positions = new Map<string, number>()

  constructor(root: string) {
    this.#root = root
  }

  line(line: string): void {
    const match = /^(\d+)\s+(.*)$/.exec(line)
    if (match === null) return
    const [, thread, rest] = match as unknown as [string, string, string]
    if (rest.endsWith("<unfinished ...>")) {
      const text = rest.slice(0, -"<unfinished ...>".length)
      this.#mark(text)
      this.#unfinished.set(thread, { text, since: this.events.length })
      return
    }
    const resumed = /^<\.\.\. \w+ resumed>(.*)$/.exec(rest)
    if (resumed === null) {
      this.#mark(rest)
      this.#call(rest, this.events.length)
      return
    }
    const begun = this.#unfinished.get(thread)
    this.#unfinished.delete(thread)
    if (begun !== undefined) this.#call(begun.text + resumed[1], begun.since)
  }

  /** A mark counts from the moment of the call: the promise was kept before it was told. */
  #mark(text: string): void {
    if (/^write\(1<(?!\\x2f)/.test(text)) this.events.push({ kind: "mark", text: decode(strings(text)[0]).toString() })
  }

  #call(text: string, since: number): void {
    const match = /^(\w+)\((.*)\)\s+= (\d+)(<[^>]*>)?/s.exec(text)
    if (match === null) return
    const [, call, values, result, resultFile] = match as unknown as [string, string, string, string, string?]
    const descriptor = /^(\d+)<([^>]*)>/.exec(values)
    const file = decode(descriptor?.[2]).toString()
    const fd = descriptor?.[1] ?? ""
    const inside = (path: string): boolean => path === this.#root || path.startsWith(`${this.#root}/`)
    const numbers = values.split(/, /).map(Number)
    switch (call) {
      case "open":
      case "openat":
      case "creat": {
        const path = decode(resultFile?.slice(1, -1)).toString()
        this.#positions.set(result, 0)
        if (!inside(path)) return
        const creates = call === "creat" || values.includes("O_CREAT")
        const truncate = call === "creat" || values.includes("O_TRUNC")
        if (creates || truncate) this.events.push({ kind: "create", path, truncate })
        return
      }
      case "lseek":
        this.#positions.set(fd, Number(result))
        return
      case "write":
      case "writev": {
        const offset = this.#positions.get(fd) ?? 0
        this.#positions.set(fd, offset + Number(result))
        if (inside(file)) this.#write(file, offset, values, Number(result))
        return
      }
      case "pwrite64":
      case "pwritev":
      case "pwritev2":
        if (inside(file)) this.#write(file, numbers.at(call === "pwritev2" ? -2 : -1) as number, values, Number(result))
        return
      case "fsync":
      case "fdatasync":
        // The directory above counts too: it holds the name of the root.
        if (inside(file) || this.#root.startsWith(`${file}/`)) this.events.push({ kind: "sync", path: file, since })
        return
      case "ftruncate":
        if (inside(file)) this.events.push({ kind: "resize", path: file, size: numbers.at(-1) as number, shrink: true })
        return
      case "fallocate":
        if (inside(file)) {
          const size = (numbers.at(-1) as number) + (numbers.at(-2) as number)
          this.events.push({ kind: "resize", path: file, size, shrink: false })
        }
        return
      case "unlink":
      case "unlinkat":
      case "rmdir":
      case "mkdir":
      case "mkdirat": {
        const path = decode(strings(values)[0]).toString()
        if (inside(path)) this.events.push({ kind: call.startsWith("mkdir") ? "mkdir" : "remove", path })
        return
      }
      case "rename":
      case "renameat":
      case "renameat2": {
        const [path, to] = strings(values).map((name) => decode(name).toString()) as [string, string]
        if (inside(path) || inside(to)) this.events.push({ kind: "rename", path, to })
        return
      }
      case "truncate":
        if (inside(decode(strings(values)[0]).toString())) throw new Error("a truncation by name is not understood")
    }
  }

  #write(path: string, offset: number, values: string, written: number): void {
    const parts = strings(values).map(decode)
    const data = Buffer.concat(parts)
    if (data.length < written) throw new Error(`a write of ${written} bytes to ${path} was traced with ${data.length}`)
    this.events.push({ kind: "write", path, offset, data: data.subarray(0, written) })
  }
}

/** The quoted strings of a call, still in hexadecimal. */
function strings(text: string): string[] {
  return Array.from(text.matchAll(/"((?:\\x[0-9a-f]{2})*)"/g), (match) => match[1] as string)
}

function decode(hexadecimal: string | undefined): Buffer {
  return Buffer.from((hexadecimal ?? "").replaceAll("\\x", ""), "hex")
}
