/**
 * Whether one Protobuf schema can read what another wrote ("Updating A Message Type" of the language guides), so that no value changes: a
 * number that fits is a widening, one that may be cut off is not.
 */
import type { ProtobufEnum, ProtobufField, ProtobufMessage } from "./protobuf-type.ts"
import type { Reason } from "./schema-format.ts"

/** Types that a reader takes besides the writer's own, and every value comes out as it went in. */
const widenings: Readonly<Record<string, readonly string[]>> = {
  int64: ["int32", "uint32", "bool", "enum"],
  uint64: ["uint32", "bool"],
  int32: ["bool", "enum"],
  uint32: ["bool"],
  sint64: ["sint32"],
  bytes: ["string", "message"],
}

/**
 * Why a schema cannot read what the messages of `writer` wrote.
 * @param reader The reader's message of a full name, imports included.
 */
export function protobufIncompatibilities(
  reader: (fullName: string) => ProtobufMessage | undefined,
  writer: ReadonlyMap<string, ProtobufMessage>,
): Reason[] {
  const comparison = new Comparison()
  for (const [name, message] of writer) {
    const own = reader(name)
    if (own === undefined) comparison.reasons.push({ path: name, message: "the reader has no such message" })
    else comparison.messages(own, message)
  }
  return comparison.reasons
}

class Comparison {
  readonly reasons: Reason[] = []
  readonly #seen = new Map<ProtobufMessage | ProtobufEnum, Set<ProtobufMessage | ProtobufEnum>>()

  messages(reader: ProtobufMessage, writer: ProtobufMessage): void {
    if (this.#met(reader, writer)) return
    const written = new Map(writer.fieldsArray.map((field) => [field.id, field]))
    for (const field of reader.fieldsArray) {
      const path = `${nameOf(reader)}.${field.name}`
      const other = written.get(field.id)
      if (other === undefined) this.#added(field, writer, path)
      else this.#field(field, other, path)
    }
    this.#oneofs(reader, writer)
  }

  #added(field: ProtobufField, writer: ProtobufMessage, path: string): void {
    if (field.required) this.#add(path, `the field ${field.id} is required, and the writer has no such field`)
    for (const reserved of writer.reserved ?? []) {
      if (typeof reserved === "string" ? reserved === field.name : reserved[0] <= field.id && field.id <= reserved[1]) {
        this.#add(
          path,
          `the writer reserves ${typeof reserved === "string" ? `the name "${reserved}"` : `the number ${field.id}`}`,
        )
      }
    }
  }

  #field(reader: ProtobufField, writer: ProtobufField, path: string): void {
    if (reader.required && !writer.required)
      this.#add(path, `the field ${reader.id} is required, and the writer may leave it out`)
    if (reader.map !== writer.map) {
      const differ = writer.map ? "a map, and the reader's is none" : "no map, and the reader's is one"
      this.#add(path, `the field ${reader.id} is ${differ}`)
      return
    }
    if (reader.keyType !== writer.keyType && !widens(reader.keyType, writer.keyType)) {
      this.#add(path, `the keys of the map are ${writer.keyType}, which cannot be read as ${reader.keyType}`)
    }
    if (writer.repeated && !reader.repeated)
      this.#add(path, `the field ${reader.id} is repeated, and the reader takes one value`)
    this.#types(reader, writer, path)
  }

  #types(reader: ProtobufField, writer: ProtobufField, path: string): void {
    const [own, other] = [kindOf(reader), kindOf(writer)]
    if (own !== other) {
      if (!widens(own, other))
        this.#add(path, `the type is ${typeText(writer)}, which cannot be read as ${typeText(reader)}`)
      return
    }
    if (own === "message" || own === "group") {
      this.messages(reader.resolvedType as ProtobufMessage, writer.resolvedType as ProtobufMessage)
    } else if (own === "enum") {
      this.#enums(reader.resolvedType as ProtobufEnum, writer.resolvedType as ProtobufEnum)
    }
  }

  #enums(reader: ProtobufEnum, writer: ProtobufEnum): void {
    if (this.#met(reader, writer)) return
    const numbers = new Set(Object.values(reader.values))
    for (const [name, number] of Object.entries(writer.values)) {
      if (!numbers.has(number) && reader._features?.enum_type === "CLOSED") {
        this.#add(nameOf(reader), `the reader's enum is closed and has no value ${number} (${name})`)
      }
    }
  }

  /** Of several fields in one oneof only the last is kept. */
  #oneofs(reader: ProtobufMessage, writer: ProtobufMessage): void {
    for (const { name, fieldsArray } of reader.oneofsArray) {
      const numbers = new Set(fieldsArray.map(({ id }) => id))
      const apart = writer.fieldsArray.filter(({ id }) => numbers.has(id))
      const together = writer.oneofsArray.some((oneof) => apart.every((field) => oneof.fieldsArray.includes(field)))
      if (apart.length > 1 && !together) {
        this.#add(
          `${nameOf(reader)}.${name}`,
          `the fields ${apart.map(({ id }) => id).join(", ")} exclude each other, and the writer may set several`,
        )
      }
    }
  }

  #met(reader: ProtobufMessage | ProtobufEnum, writer: ProtobufMessage | ProtobufEnum): boolean {
    const writers = this.#seen.get(reader) ?? new Set()
    if (writers.has(writer)) return true
    this.#seen.set(reader, writers.add(writer))
    return false
  }

  #add(path: string, message: string): void {
    this.reasons.push({ path, message })
  }
}

/** The full name without the dot in front. */
function nameOf(type: ProtobufMessage | ProtobufEnum): string {
  return type.fullName.replace(/^\./, "")
}

function kindOf(field: ProtobufField): string {
  const { resolvedType } = field
  if (resolvedType === null) return field.type
  if ("values" in resolvedType) return "enum"
  return field.delimited ? "group" : "message"
}

function typeText(field: ProtobufField): string {
  return field.resolvedType === null ? field.type : `${kindOf(field)} ${nameOf(field.resolvedType)}`
}

function widens(reader: string | undefined, writer: string | undefined): boolean {
  return reader !== undefined && writer !== undefined && widenings[reader]?.includes(writer) === true
}
