/** Protobuf schemas as they are parsed: the schema's own file, with what it imports. */
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { loadLibrary } from "../codec/library.ts"
import type {
  ParsedProtobuf,
  ProtobufLibrary,
  ProtobufMessage,
  ProtobufNamespace,
  ProtobufRoot,
} from "./protobuf-type.ts"
import type { ResolvedSchema } from "./schema-format.ts"

/** Its content is options of descriptors, which no message needs. */
const descriptorFile = "google/protobuf/descriptor.proto"

/** A parsed schema. `root` has the imports too. */
export interface ProtobufSchema {
  readonly root: ProtobufRoot
  /** The messages of the schema's own file by full name, in the order of the text; those within others follow them. */
  readonly messages: ReadonlyMap<string, ProtobufMessage>
  /** Where each of them stands: its place among the messages of the file, then among those within that one, and so on. */
  readonly places: ReadonlyMap<string, readonly number[]>
}

/** @throws InvalidError for a text that does not parse, and for an import or a type that is not there; UnsupportedError without the library */
export function parseProtobuf(schema: ResolvedSchema): ProtobufSchema {
  const library = loadLibrary<ProtobufLibrary>("protobufjs", "a Protobuf schema")
  const root = new library.Root()
  const imported = new Set(schema.dependencies.map(({ name }) => name))
  for (const { name, schema: text } of schema.dependencies) {
    imports(library, root, { file: parse(library, text, { root, what: `the import ${shown(name)}` }), imported })
  }
  imports(library, root, { file: parse(library, schema.schema, { root, what: "the Protobuf schema" }), imported })
  parsed("the Protobuf schema", () => root.resolveAll())
  return { root, ...ownMessages(library, schema.schema, root) }
}

function parse(
  library: ProtobufLibrary,
  text: string,
  { root, what }: { readonly root: ProtobufRoot; readonly what: string },
): ParsedProtobuf {
  return parsed(what, () => library.parse(text, root, {}))
}

/** Takes well-known files from the library, and makes sure that all others are there. */
function imports(
  library: ProtobufLibrary,
  root: ProtobufRoot,
  { file, imported }: { readonly file: ParsedProtobuf; readonly imported: Set<string> },
): void {
  for (const name of [...(file.imports ?? []), ...(file.weakImports ?? [])]) {
    if (imported.has(name) || name === descriptorFile) continue
    const known = library.common.get(name)
    if (known?.nested === undefined) {
      throw new InvalidError(`the Protobuf schema imports ${shown(name)}, which is none of its references`)
    }
    imported.add(name)
    const { nested } = known
    parsed(`the import ${shown(name)}`, () => root.addJSON(nested))
  }
}

function ownMessages(
  library: ProtobufLibrary,
  text: string,
  root: ProtobufRoot,
): Pick<ProtobufSchema, "messages" | "places"> {
  // Parsed apart, so that only what the file itself has is there, in its order.
  const alone = new library.Root()
  const { package: name } = library.parse(text, alone, {})
  const messages = new Map<string, ProtobufMessage>()
  const places = new Map<string, readonly number[]>()
  const walk = (space: ProtobufNamespace, place: readonly number[]): void => {
    const within = (space.nestedArray ?? []).filter((nested) => nested instanceof library.Type)
    for (const [index, message] of within.entries()) {
      const fullName = message.fullName.replace(/^\./, "")
      messages.set(fullName, root.lookup(message.fullName) as ProtobufMessage)
      places.set(fullName, [...place, index])
      walk(message, [...place, index])
    }
  }
  walk(name === undefined ? alone : (alone.lookup(name) ?? alone), [])
  return { messages, places }
}

function parsed<T>(what: string, work: () => T): T {
  try {
    return work()
  } catch (cause) {
    throw new InvalidError(`${what} does not parse: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}
