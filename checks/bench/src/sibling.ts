/** Modules that run in a thread or process of their own, named without their extension. */

/**
 * The URL of a module beside the one that asks. Its extension is that of the asking module, so that sources start sources (`.ts`) and
 * compiled files compiled ones (`.js`).
 * @param base `import.meta.url` of the asking module.
 */
export function sibling(base: string, name: string): URL {
  return new URL(`./${name}${base.endsWith(".ts") ? ".ts" : ".js"}`, base)
}
