/**
 * Compiles schemas to codecs: one pair of functions for each message and version, made once, out of closures that are specific to
 * each field. (Kafka protocol guide; KIP-482 for flexible versions: compact lengths and tagged fields.)
 */
import { UnsupportedError } from "@millrace/contract"
import { malformed, type Reader } from "./reader.ts"
import type { FieldSchema, MessageSchema, Versions, WireType } from "./schema.ts"
import type { Writer } from "./writer.ts"

/** The body of one message in one version. */
export interface BodyCodec {
  write(writer: Writer, body: Struct): void
  read(reader: Reader): Struct
}

/** A message as an object. */
export type Struct = Record<string, unknown>

interface ValueCodec {
  write(writer: Writer, value: unknown): void
  read(reader: Reader): unknown
  /** The fewest bytes that a value takes. */
  readonly leastBytes: number
}

interface StructCodec extends ValueCodec {
  isInitial(value: unknown): boolean
  readonly initial: Struct
}

/** What applies to every part of a message in one version. */
interface Scope {
  readonly message: string
  readonly version: number
  readonly flexible: boolean
}

/** The codec of a message in one of its versions. */
export function compile(schema: MessageSchema, version: number): BodyCodec {
  const flexible = schema.flexible !== undefined && version >= schema.flexible
  return structCodec(schema.fields, { message: schema.name, version, flexible }) as unknown as BodyCodec
}

const zeroUuid = "AAAAAAAAAAAAAAAAAAAAAA"
const noBytes = new Uint8Array(0)
const noElements: readonly unknown[] = Object.freeze([])

function structCodec(fields: readonly FieldSchema[], scope: Scope): StructCodec {
  const parts = fields.map((field) => fieldCodec(field, scope))
  const plain = parts.filter((part) => part.place === "plain")
  const tagged = parts.filter((part) => part.place === "tagged").sort((a, b) => a.tag - b.tag)
  const absent = parts.filter((part) => part.place === "absent" && !part.ignorable)
  const byTag = new Map(tagged.map((part) => [part.tag, part]))
  const initial: Struct = {}
  for (const part of parts) initial[part.name] = part.initial

  return {
    leastBytes: plain.reduce((sum, part) => sum + part.codec.leastBytes, scope.flexible ? 1 : 0),
    initial: Object.freeze(initial),
    isInitial: (value) => parts.every((part) => isInitial(part, (value as Struct)[part.name])),
    write(writer, value) {
      const struct = value as Struct
      for (const part of absent) {
        if (!isInitial(part, struct[part.name])) throw unknownHere(part.name, scope)
      }
      for (const part of plain) {
        const given = struct[part.name]
        part.codec.write(writer, given === undefined ? part.initial : given)
      }
      if (scope.flexible) writeTagged(writer, struct, tagged)
    },
    read(reader) {
      const struct: Struct = {}
      for (const part of parts) struct[part.name] = part.place === "plain" ? part.codec.read(reader) : part.initial
      if (scope.flexible) readTagged(reader, struct, byTag)
      return struct
    },
  }
}

interface Part {
  readonly name: string
  readonly place: "plain" | "tagged" | "absent"
  readonly tag: number
  readonly ignorable: boolean
  readonly codec: ValueCodec
  readonly initial: unknown
  /** Of a single struct that is never null. */
  readonly struct: StructCodec | undefined
}

function fieldCodec(field: FieldSchema, scope: Scope): Part {
  const nullable = within(field.nullable, scope.version)
  const there = within(field.versions, scope.version)
  const element = field.fields === undefined ? undefined : structCodec(field.fields, scope)
  const single = field.array === true ? undefined : element
  const codec =
    field.array === true
      ? arrayCodec(element ?? scalarCodec(field.type, false, scope), nullable, scope)
      : single === undefined
        ? scalarCodec(field.type, nullable, scope)
        : nullable
          ? nullableStructCodec(single)
          : single
  return {
    name: field.name,
    place: there ? (within(field.tagged, scope.version) ? "tagged" : "plain") : "absent",
    tag: field.tag ?? -1,
    ignorable: field.ignorable === true,
    codec,
    initial: field.initial !== undefined ? field.initial : (single?.initial ?? zeroOf(field)),
    struct: single,
  }
}

function within(versions: Versions | undefined, version: number): boolean {
  return versions !== undefined && version >= versions[0] && version <= versions[1]
}

function zeroOf(field: FieldSchema): unknown {
  if (field.array === true) return noElements
  switch (field.type) {
    case "bool":
      return false
    case "int64":
      return 0n
    case "uuid":
      return zeroUuid
    case "string":
      return ""
    case "bytes":
      return noBytes
    case "records":
      return null
    default:
      return 0
  }
}

function isInitial(part: Part, value: unknown): boolean {
  if (value === undefined || value === part.initial) return true
  if (value === null || part.initial === null) return false
  if (Array.isArray(value) || value instanceof Uint8Array) return value.length === 0
  return part.struct?.isInitial(value) ?? false
}

function writeTagged(writer: Writer, struct: Struct, tagged: readonly Part[]): void {
  let count = 0
  for (const part of tagged) if (!isInitial(part, struct[part.name])) count++
  writer.unsignedVarint(count)
  if (count === 0) return
  for (const part of tagged) {
    const value = struct[part.name]
    if (isInitial(part, value)) continue
    writer.unsignedVarint(part.tag)
    writer.sized(() => part.codec.write(writer, value))
  }
}

/** Tags that are not known are of a newer version and skipped (KIP-482). */
function readTagged(reader: Reader, struct: Struct, byTag: ReadonlyMap<number, Part>): void {
  let last = -1
  for (let rest = reader.count(reader.unsignedVarint(), 2); rest > 0; rest--) {
    const tag = reader.unsignedVarint()
    if (tag <= last) throw malformed(`tag ${tag} comes behind tag ${last}`)
    last = tag
    const length = reader.count(reader.unsignedVarint(), 1)
    const part = byTag.get(tag)
    if (part === undefined) {
      reader.skip(length)
      continue
    }
    const end = reader.left - length
    struct[part.name] = part.codec.read(reader)
    if (reader.left !== end) throw malformed(`tagged field ${part.name} does not fill its ${length} bytes`)
  }
}

function nullableStructCodec(struct: StructCodec): ValueCodec {
  return {
    leastBytes: 1,
    write(writer, value) {
      writer.int8(value === null ? -1 : 1)
      if (value !== null) struct.write(writer, value)
    },
    read: (reader) => (reader.int8() < 0 ? null : struct.read(reader)),
  }
}

function arrayCodec(element: ValueCodec, nullable: boolean, scope: Scope): ValueCodec {
  const { flexible } = scope
  const leastBytes = Math.max(1, element.leastBytes)
  return {
    leastBytes: flexible ? 1 : 4,
    write(writer, value) {
      const list = value as readonly unknown[] | null
      if (list === null) {
        if (!nullable) throw notNull("array", scope)
        return flexible ? writer.unsignedVarint(0) : writer.int32(-1)
      }
      if (flexible) writer.unsignedVarint(list.length + 1)
      else writer.int32(list.length)
      for (const item of list) element.write(writer, item)
    },
    read(reader) {
      const length = flexible ? reader.unsignedVarint() - 1 : reader.int32()
      if (length === -1 && nullable) return null
      const count = reader.count(length, leastBytes)
      const list: unknown[] = []
      for (let i = 0; i < count; i++) list.push(element.read(reader))
      return list
    },
  }
}

const fixed: Partial<Record<WireType, ValueCodec>> = {
  bool: {
    leastBytes: 1,
    write: (writer, value) => writer.int8(value === true ? 1 : 0),
    read: (reader) => reader.int8() !== 0,
  },
  int8: {
    leastBytes: 1,
    write: (writer, value) => writer.int8(value as number),
    read: (reader) => reader.int8(),
  },
  int16: {
    leastBytes: 2,
    write: (writer, value) => writer.int16(value as number),
    read: (reader) => reader.int16(),
  },
  int32: {
    leastBytes: 4,
    write: (writer, value) => writer.int32(value as number),
    read: (reader) => reader.int32(),
  },
  int64: {
    leastBytes: 8,
    write: (writer, value) => writer.int64(value as bigint),
    read: (reader) => reader.int64(),
  },
  uuid: {
    leastBytes: 16,
    write: (writer, value) => writer.uuid(value as string),
    read: (reader) => reader.uuid(),
  },
}

function scalarCodec(type: WireType, nullable: boolean, scope: Scope): ValueCodec {
  const known = fixed[type]
  if (known !== undefined) return known
  return type === "string" ? stringCodec(nullable, scope) : bytesCodec(type === "records", nullable, scope)
}

function stringCodec(nullable: boolean, scope: Scope): ValueCodec {
  const { flexible } = scope
  return {
    leastBytes: flexible ? 1 : 2,
    write(writer, value) {
      if (value === null) {
        if (!nullable) throw notNull("string", scope)
        return flexible ? writer.unsignedVarint(0) : writer.int16(-1)
      }
      if (flexible) writer.compactString(value as string)
      else writer.string(value as string)
    },
    read(reader) {
      const length = flexible ? reader.unsignedVarint() - 1 : reader.int16()
      return length === -1 && nullable ? null : reader.text(length)
    },
  }
}

function bytesCodec(ownChunk: boolean, nullable: boolean, scope: Scope): ValueCodec {
  const { flexible } = scope
  return {
    leastBytes: flexible ? 1 : 4,
    write(writer, value) {
      const bytes = value as Uint8Array | null
      if (bytes === null) {
        if (!nullable) throw notNull("bytes", scope)
        return flexible ? writer.unsignedVarint(0) : writer.int32(-1)
      }
      if (flexible) writer.unsignedVarint(bytes.length + 1)
      else writer.int32(bytes.length)
      if (ownChunk) writer.records(bytes)
      else writer.raw(bytes)
    },
    read(reader) {
      const length = flexible ? reader.unsignedVarint() - 1 : reader.int32()
      return length === -1 && nullable ? null : reader.view(length)
    },
  }
}

function notNull(what: string, scope: Scope): UnsupportedError {
  return new UnsupportedError(`${scope.message} version ${scope.version} takes no null for a ${what}`)
}

function unknownHere(field: string, scope: Scope): UnsupportedError {
  return new UnsupportedError(
    `${scope.message} version ${scope.version} has no field ${field}: a newer broker is needed`,
  )
}
