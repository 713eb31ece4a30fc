/** JSON Schemas with the places that `$ref` leads to. */
import type { ResolvedSchema } from "./schema-format.ts"

/** A schema or a part of one, with the document that its references start from. */
export interface JsonPlace {
  readonly schema: JsonSchemaValue
  readonly document: JsonDocument
}

/** What a JSON Schema is: an object of keywords, or `true` for everything and `false` for nothing. */
export type JsonSchemaValue = boolean | Readonly<Record<string, unknown>>

/** How many references may lead to each other. */
const longestChain = 100

/** Annotations: they say nothing about what is valid. */
export const annotations: ReadonlySet<string> = new Set([
  "$id",
  "id",
  "$schema",
  "$comment",
  "$anchor",
  "$defs",
  "definitions",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
  "contentEncoding",
  "contentMediaType",
])

/** One document, among those that it can reach. */
export class JsonDocument {
  readonly root: JsonSchemaValue
  readonly #uri: string
  readonly #others: Map<string, JsonDocument>

  private constructor(root: JsonSchemaValue, uri: string, others: Map<string, JsonDocument>) {
    this.root = root
    this.#uri = uri
    this.#others = others
  }

  /** The root of a schema whose texts are JSON. */
  static open(schema: ResolvedSchema): JsonPlace {
    const documents = new Map<string, JsonDocument>()
    const add = (text: string, name: string | undefined): JsonDocument => {
      const root = JSON.parse(text) as JsonSchemaValue
      const id = idOf(root) ?? name ?? ""
      const document = new JsonDocument(root, id, documents)
      for (const uri of [id, name]) if (uri !== undefined && uri !== "") documents.set(withoutHash(uri), document)
      return document
    }
    for (const { name, schema: text } of schema.dependencies) add(text, name)
    const document = add(schema.schema, undefined)
    return { schema: document.root, document }
  }

  /** Where a reference leads; `undefined` when there is nothing, or when it leads to itself. */
  follow(place: JsonPlace): JsonPlace | undefined {
    let at: JsonPlace | undefined = place
    for (let step = 0; step < longestChain; step++) {
      if (at === undefined || typeof at.schema === "boolean" || typeof at.schema.$ref !== "string") return at
      at = at.document.#target(at.schema.$ref)
    }
    return undefined
  }

  /** Whether keywords beside a `$ref` do not count (up to draft 7). */
  get ignoresSiblings(): boolean {
    const dialect = typeof this.root === "boolean" ? undefined : this.root.$schema
    return typeof dialect !== "string" || /draft-0[3-7]/.test(dialect)
  }

  #target(reference: string): JsonPlace | undefined {
    const [file = "", pointer = ""] = reference.split("#", 2)
    const document = file === "" ? this : (this.#others.get(file) ?? this.#others.get(this.#absolute(file)))
    if (document === undefined) return undefined
    if (pointer !== "" && !pointer.startsWith("/")) return document.#anchor(pointer)
    let at: unknown = document.root
    for (const step of pointer.split("/").slice(1)) {
      const key = decoded(step)
      if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined
      at = (at as Record<string, unknown>)[key]
    }
    return isSchema(at) ? { schema: at, document } : undefined
  }

  #anchor(name: string): JsonPlace | undefined {
    const found = search(this.root, name)
    return found === undefined ? undefined : { schema: found, document: this }
  }

  #absolute(file: string): string {
    try {
      return new URL(file, this.#uri).href
    } catch {
      return file
    }
  }
}

/** The path of what stands under a keyword. */
export function pathBelow(path: string, ...steps: readonly (string | number)[]): string {
  return [...(path === "" ? [] : [path]), ...steps].join("/")
}

function isSchema(value: unknown): value is JsonSchemaValue {
  return typeof value === "boolean" || (typeof value === "object" && value !== null && !Array.isArray(value))
}

function idOf(root: JsonSchemaValue): string | undefined {
  if (typeof root === "boolean") return undefined
  const id = root.$id ?? root.id
  return typeof id === "string" ? id : undefined
}

function withoutHash(uri: string): string {
  return uri.split("#", 1)[0] as string
}

function decoded(step: string): string {
  let text = step
  try {
    text = decodeURIComponent(step)
  } catch {
    // A percent sign that encodes nothing stands for itself.
  }
  return text.replaceAll("~1", "/").replaceAll("~0", "~")
}

function search(value: unknown, anchor: string): JsonSchemaValue | undefined {
  if (typeof value !== "object" || value === null) return undefined
  const { $anchor, $id } = value as { readonly $anchor?: unknown; readonly $id?: unknown }
  if (($anchor === anchor || $id === `#${anchor}`) && isSchema(value)) return value
  for (const part of Object.values(value)) {
    const found = search(part, anchor)
    if (found !== undefined) return found
  }
  return undefined
}
