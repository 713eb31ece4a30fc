/**
 * Optional libraries of codecs. Each is loaded when the first codec that needs it is made, never before, and at once: encoding and decoding
 * are synchronous, and so is the way to them.
 */
import { UnsupportedError } from "@millrace/contract"

/** The packages that codecs use. None of them is installed with Millrace. */
export type LibraryName =
  | "ajv"
  | "ajv/dist/2019.js"
  | "ajv/dist/2020.js"
  | "apache-arrow"
  | "avsc"
  | "bson"
  | "cborg"
  | "msgpackr"
  | "protobufjs"

/**
 * The exports of an optional library.
 * @param codec What needs it, for the error message: `CBOR`.
 * @throws UnsupportedError when it is not installed, with the command that installs it; or when it does not load, with its own error as
 *   the cause
 */
export function loadLibrary<L>(name: LibraryName, codec: string): L {
  // Node's modules are asked for here and not imported, since `node:module` and `node:fs` bring much along, which every program would wait for.
  const { createRequire } = process.getBuiltinModule("node:module")
  // A bundle in CommonJS has no address of its own: there the packages of the working directory count.
  const require = createRequire(import.meta.url ?? process.getBuiltinModule("node:path").join(process.cwd(), "main.js"))
  try {
    return require(pathOf(name, require)) as L
  } catch (cause) {
    const library = name.split("/")[0] as string
    if (isMissing(cause, library)) {
      const message = `${codec} needs the package "${library}", which is not installed: npm install ${library}`
      throw new UnsupportedError(message, { cause })
    }
    const message = `${codec} needs the package "${library}", which does not load: ${String(cause)}`
    throw new UnsupportedError(message, { cause })
  }
}

/**
 * The file that `import` of the user's program finds, so that objects of both are of one class: several packages have a second copy of
 * everything for `require`. A bundle in CommonJS has the copy for `require`, as its program has.
 */
function pathOf(name: LibraryName, require: NodeJS.Require): string {
  if (typeof import.meta.resolve === "function") {
    return process.getBuiltinModule("node:url").fileURLToPath(import.meta.resolve(name))
  }
  try {
    return require.resolve(name)
  } catch (error) {
    if (codeOf(error) !== "ERR_PACKAGE_PATH_NOT_EXPORTED") throw error
    const { join } = process.getBuiltinModule("node:path")
    const { existsSync, readFileSync } = process.getBuiltinModule("node:fs")
    // A package with an entry for `import` alone, which `require` loads all the same.
    for (const directory of require.resolve.paths(name) ?? []) {
      const manifest = join(directory, name, "package.json")
      if (!existsSync(manifest)) continue
      const { exports } = JSON.parse(readFileSync(manifest, "utf8")) as { exports: { "."?: { import?: unknown } } }
      const entry = exports["."]?.import
      if (typeof entry === "string") return join(directory, name, entry)
    }
    throw error
  }
}

/** Whether it is this package that is not there, and not one that it needs itself. */
function isMissing(error: unknown, library: string): boolean {
  const code = codeOf(error)
  if (code !== "MODULE_NOT_FOUND" && code !== "ERR_MODULE_NOT_FOUND") return false
  return (error as Error).message.includes(`'${library}`)
}

function codeOf(error: unknown): unknown {
  return (error as { readonly code?: unknown } | null)?.code
}
