/**
 * When two schemas are the same: type, canonical text and references agree. Layout does not count, nor the order of keys in JSON, nor
 * comments in Protobuf; everything else does, documentation in Avro and JSON Schema included.
 */
import { InvalidError } from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"
import { shown } from "../client/options.ts"
import { checkReferences, jsonText } from "./json-text.ts"
import { protobufTokens } from "./protobuf-tokens.ts"
import type { SchemaInit, SchemaReference, SchemaType } from "./schema.ts"

/** A schema as it was given, checked in its outer form and as text. */
export interface SchemaText {
  readonly type: SchemaType
  readonly schema: string
  readonly references: readonly SchemaReference[]
}

/** The types, in the order in which errors list them. */
const schemaTypes: readonly SchemaType[] = ["avro", "json-schema", "protobuf"]

/**
 * @throws InvalidError for an unknown type or key, for references that cannot be right, and for a text that is not even JSON, or not
 *   Protobuf by its tokens
 */
export function schemaText(init: SchemaInit): SchemaText {
  if (typeof init !== "object" || init === null) {
    throw new InvalidError(`a schema is an object with "type" and "schema", not ${shown(init)}`)
  }
  for (const key of Object.keys(init)) {
    if (!known.includes(key))
      throw new InvalidError(`schema: unknown key ${shown(key)}. Known keys: ${known.join(", ")}`)
  }
  const { type } = init
  if (!schemaTypes.includes(type)) {
    throw new InvalidError(`schema type ${shown(type)} is not one of ${schemaTypes.map(shown).join(", ")}`)
  }
  return { type, schema: textOf(type, init.schema), references: checkReferences(init.references) }
}

const known: readonly string[] = ["type", "schema", "references", "id", "subject", "version"]

/** 64 hexadecimal digits that are the same for what is the same schema. */
export function schemaHash({ type, schema, references }: SchemaText): string {
  const text = type === "protobuf" ? protobufTokens(schema).join(" ") : jsonText(schema)
  const used = [...references]
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, subject, version }) => [name, subject, version])
  return nodeCrypto()
    .createHash("sha256")
    .update(JSON.stringify([type, text, used]))
    .digest("hex")
}

function textOf(type: SchemaType, schema: SchemaInit["schema"]): string {
  if (type === "protobuf") {
    if (typeof schema !== "string") throw new InvalidError(`a Protobuf schema is text, not ${shown(schema)}`)
    protobufTokens(schema)
    return wellFormed(schema)
  }
  if (typeof schema === "string") {
    // A name of a primitive type is Avro without its quotation marks.
    const text = type === "avro" && /^[A-Za-z_][\w.]*$/.test(schema) ? JSON.stringify(schema) : schema
    jsonText(text)
    return wellFormed(text)
  }
  if ((typeof schema !== "object" || schema === null) && (typeof schema !== "boolean" || type === "avro")) {
    throw new InvalidError(`a schema is JSON as text, or what it stands for, not ${shown(schema)}`)
  }
  let text: string | undefined
  try {
    text = JSON.stringify(schema)
  } catch (cause) {
    throw new InvalidError(`the schema has no JSON form: ${String(cause)}`, { cause })
  }
  if (text === undefined) throw new InvalidError("the schema has no JSON form")
  jsonText(text)
  return wellFormed(text)
}

function wellFormed(text: string): string {
  if (text.isWellFormed()) return text
  throw new InvalidError("the schema has a lone surrogate, which UTF-8 cannot store")
}
