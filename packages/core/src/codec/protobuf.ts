import { DecodeError, InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { Codec } from "./codec.ts"
import { encodeFailure } from "./failure.ts"
import { type ProtobufLibrary, type ProtobufType, protobufLibrary } from "./protobuf-library.ts"
import { ProtobufValues } from "./protobuf-values.ts"
import { plainView } from "./utf8.ts"

/** A message type as the text that defines it, and its name: `shop.Order`. */
export interface ProtobufSource {
  /** The text of one `.proto` file. It may import the well-known types; other imports go with a `Type` that `protobufjs` has loaded. */
  readonly proto: string
  readonly message: string
}

/**
 * Protobuf payloads: one message, without a header. Needs the package `protobufjs`.
 *
 * 64-bit integers are bigints (safe whole numbers are taken too), bytes are a `Uint8Array`, enums are numbers (names are taken too).
 * Fields have their names in camel case, as in Protobuf's JSON. Fields without presence that were not sent have their default; those with
 * presence are absent.
 */
export class Protobuf<T> implements Codec<T> {
  readonly name: string = "Protobuf"
  readonly contentType: "protobuf" = "protobuf"
  readonly #library: ProtobufLibrary
  readonly #values: ProtobufValues
  readonly #type: ProtobufType

  /** @throws InvalidError for a text that does not parse or lacks the message; UnsupportedError without `protobufjs` */
  constructor(type: ProtobufType | ProtobufSource) {
    this.#library = protobufLibrary()
    this.#values = new ProtobufValues(this.#library)
    this.#type = isType(type) ? type : parseType(this.#library, type)
  }

  /** @throws InvalidError for a value that is not of the type, with the path of the field; fields that it lacks are refused too */
  encode(value: T): Uint8Array {
    try {
      return plainView(this.#type.encode(this.#values.message(this.#type, value)).finish())
    } catch (cause) {
      throw encodeFailure("Protobuf", value, cause)
    }
  }

  /** @throws DecodeError or an error of `protobufjs` for bytes that are no message of the type */
  decode(payload: Uint8Array): T {
    const reader = new this.#library.Reader(plainView(payload))
    const message = this.#type.decode(reader as unknown as Uint8Array)
    if (reader.pos !== payload.length) {
      throw new DecodeError(`${payload.length - reader.pos} bytes follow the message, from byte ${reader.pos} on`)
    }
    return this.#values.plain(this.#type, message) as T
  }
}

/** `new Protobuf<T>(type)`: `T` is said by the caller, and the type checks every value against itself. */
export function protobuf<T = unknown>(type: ProtobufType | ProtobufSource): Protobuf<T> {
  return new Protobuf<T>(type)
}

function isType(type: ProtobufType | ProtobufSource): type is ProtobufType {
  const given = type as Partial<ProtobufType> | null | undefined
  return typeof given?.decode === "function" && Array.isArray(given.fieldsArray)
}

function parseType(library: ProtobufLibrary, source: ProtobufSource): ProtobufType {
  const { proto, message } = source ?? {}
  if (typeof proto !== "string" || typeof message !== "string") {
    throw new InvalidError(
      `new Protobuf takes a message type of protobufjs, or { proto, message }, not ${shown(source)}`,
    )
  }
  try {
    const { root, imports } = library.parse(proto)
    for (const file of imports ?? []) {
      const nested = library.common.get(file)?.nested
      if (nested === undefined) throw new InvalidError(`it imports ${shown(file)}, which it alone does not define`)
      root.addJSON(nested)
    }
    root.resolveAll()
    return root.lookupType(message)
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new InvalidError(`the Protobuf text does not give the message ${shown(message)}: ${why}`, { cause })
  }
}
