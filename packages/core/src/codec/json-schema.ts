import { Buffer } from "node:buffer"
import { DecodeError, InvalidError } from "@millrace/contract"
import { OptionReader, shown } from "../client/options.ts"
import { unchecked } from "./check.ts"
import type { Codec } from "./codec.ts"
import { Json } from "./json.ts"
import { loadLibrary } from "./library.ts"

/** What a JSON Schema codec may be told besides its schema. */
export interface JsonSchemaOptions {
  /** Schemas that the schema refers to by `$ref`, with the name or address that it uses. Nothing is ever fetched. */
  readonly references?: readonly { readonly name: string; readonly schema: object | boolean }[]
  /**
   * A validator of your own: an instance of `Ajv` with its formats, keywords and options. Default: one that knows the vocabulary of the
   * draft that `$schema` names (2020-12, 2019-09, or draft 7, also without), reports every error, and takes `format` for a remark.
   */
  readonly ajv?: AjvInstance
}

/** An instance of `Ajv`, as far as it is used here. */
export interface AjvInstance {
  addSchema(schema: object | boolean, name: string): unknown
  compile(schema: object | boolean): AjvValidate
  errorsText(errors: readonly object[] | null | undefined, options: { readonly dataVar: string }): string
}

/** A compiled schema. */
export interface AjvValidate {
  (value: unknown): unknown
  readonly errors?: readonly object[] | null
  readonly $async?: unknown
}

/**
 * JSON payloads whose values fit a JSON Schema, checked when they are encoded as well as when they are decoded. Needs the package `ajv`.
 *
 * What is checked when encoding is what the text says: a `Date` is its text, a property that is `undefined` is absent.
 */
export class JsonSchema<T> implements Codec<T> {
  readonly name: string = "JSON Schema"
  readonly contentType: "json" = "json"
  readonly #json: Json<unknown> = new Json(unchecked)
  readonly #ajv: AjvInstance
  readonly #validate: AjvValidate

  /** @throws InvalidError for a schema that is none, that validates asynchronously, or that refers to what it was not given; UnsupportedError without `ajv` */
  constructor(schema: object | boolean, options?: JsonSchemaOptions) {
    new OptionReader<JsonSchemaOptions>("new JsonSchema", options, ["ajv", "references"])
    if (typeof schema !== "boolean" && (typeof schema !== "object" || schema === null)) {
      throw new InvalidError(`a JSON Schema is an object, true or false, not ${shown(schema)}`)
    }
    this.#ajv = options?.ajv ?? ajvFor(schema)
    try {
      for (const { name, schema: other } of options?.references ?? []) this.#ajv.addSchema(other, name)
      this.#validate = this.#ajv.compile(schema)
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw new InvalidError(`the JSON Schema does not compile: ${why}`, { cause })
    }
    if (this.#validate.$async !== undefined) {
      throw new InvalidError(
        "the JSON Schema validates asynchronously ($async); a codec needs one that answers at once",
      )
    }
  }

  /** @throws InvalidError for what JSON has no text for, and for what does not fit the schema: it lists every misfit with its path */
  encode(value: T): Uint8Array {
    const payload = this.#json.encode(value)
    const misfits = this.#misfits(
      JSON.parse(Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString()),
    )
    if (misfits !== undefined) throw new InvalidError(`the value does not fit the JSON Schema: ${misfits}`)
    return payload
  }

  /** @throws DecodeError for what does not fit the schema; as `Json` for bytes that are not JSON */
  decode(payload: Uint8Array): T {
    const value = this.#json.decode(payload)
    const misfits = this.#misfits(value)
    if (misfits !== undefined) throw new DecodeError(`the value does not fit the schema: ${misfits}`)
    return value as T
  }

  #misfits(value: unknown): string | undefined {
    if (this.#validate(value) === true) return undefined
    const { errors } = this.#validate
    const text = this.#ajv.errorsText(errors?.slice(0, mostErrors), { dataVar: "value" })
    return errors != null && errors.length > mostErrors ? `${text}, and ${errors.length - mostErrors} more` : text
  }
}

/** `new JsonSchema<T>(schema, options)`: `T` is said by the caller, and the schema checks every value against itself. */
export function jsonSchema<T = unknown>(schema: object | boolean, options?: JsonSchemaOptions): JsonSchema<T> {
  return new JsonSchema<T>(schema, options)
}

/**
 * A validator for the draft that the schema names.
 * @throws InvalidError for a draft that `ajv` does not know; UnsupportedError when `ajv` is not installed
 */
function ajvFor(schema: object | boolean): AjvInstance {
  const draft = typeof schema === "object" ? (schema as { readonly $schema?: unknown }).$schema : undefined
  const Ajv = loadLibrary<{ readonly default: new (options: object) => AjvInstance }>(
    ajvEntry(draft),
    "JSON Schema",
  ).default
  return new Ajv({ allErrors: true, strict: false, validateFormats: false, logger: false, addUsedSchema: false })
}

/** As many errors as a message lists. */
const mostErrors = 10

function ajvEntry(draft: unknown): "ajv" | "ajv/dist/2019.js" | "ajv/dist/2020.js" {
  if (draft === undefined) return "ajv"
  const address = String(draft)
    .replace(/^http:/, "https:")
    .replace(/#$/, "")
  if (address === "https://json-schema.org/draft-07/schema") return "ajv"
  if (address === "https://json-schema.org/draft/2019-09/schema") return "ajv/dist/2019.js"
  if (address === "https://json-schema.org/draft/2020-12/schema") return "ajv/dist/2020.js"
  throw new InvalidError(`the JSON Schema names the draft ${shown(draft)}; known are draft-07, 2019-09 and 2020-12`)
}
