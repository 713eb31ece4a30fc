/**
 * The fingerprint of an Arrow schema: SHA-256 over what the schema says, not over how a writer laid it out, so that every
 * implementation's encoding of one schema has the same fingerprint. Hashed is the UTF-8 text
 *
 *     millrace-arrow-schema-1\n[field, …]
 *
 * in JSON without spaces, where a field is `[name, nullable, type, [parameter, …], [field, …], dictionary, extension]`:
 * `type` is the code of Arrow's Type union; the parameters are those of `parameters` below, in the order of Arrow's Schema.fbs;
 * `dictionary` is null or `[index bits, index signed, ordered]`; `extension` is null or `[name, metadata]`. Names inside of lists and
 * maps are written as "", for Arrow leaves them to the writer. Endianness, dictionary ids and other metadata are left out.
 */
import { nodeCrypto } from "@millrace/runtime"
import type { FlatTable } from "./arrow-flatbuffer.ts"

/** A schema as far as it is told from others. */
export interface ArrowSchema {
  /** SHA-256, 32 bytes. */
  readonly fingerprint: Uint8Array
  /** Of the top level. */
  readonly fields: number
}

/** Fields of all levels together, and levels: what is larger is refused (the bounds of the Laser wire format for schemas). */
const mostFields = 4096
const mostLevels = 64

const formatName = "millrace-arrow-schema-1"

/** Slots of Arrow's tables, by the order of their fields in Schema.fbs. */
const schemaSlots = { fields: 1 } as const
const fieldSlots = { name: 0, nullable: 1, typeCode: 2, type: 3, dictionary: 4, children: 5, metadata: 6 } as const
const dictionarySlots = { indexType: 1, isOrdered: 2 } as const
const pairSlots = { key: 0, value: 1 } as const

const typeCodes = { list: 12, union: 14, fixedSizeList: 16, map: 17, largeList: 21, last: 26 } as const
const listTypes: ReadonlySet<number> = new Set([typeCodes.list, typeCodes.fixedSizeList, typeCodes.largeList, 25, 26])

type Parameter = number | boolean | string | null | readonly number[]

/** By type code; what is missing has no parameters. Fallbacks are the defaults of Schema.fbs. */
const parameters: Readonly<Record<number, (type: FlatTable) => readonly Parameter[]>> = {
  2: (int) => [int.int32(0, 0), int.flag(1)],
  3: (float) => [float.int16(0, 0)],
  7: (decimal) => [decimal.int32(0, 0), decimal.int32(1, 0), decimal.int32(2, 128)],
  8: (date) => [date.int16(0, 1)],
  9: (time) => [time.int16(0, 1), time.int32(1, 32)],
  10: (timestamp) => [timestamp.int16(0, 0), timestamp.text(1) ?? null],
  11: (interval) => [interval.int16(0, 0)],
  14: (union) => [union.int16(0, 0), union.int32s(1) ?? null],
  15: (binary) => [binary.int32(0, 0)],
  16: (list) => [list.int32(0, 0)],
  17: (map) => [map.flag(0)],
  18: (duration) => [duration.int16(0, 1)],
}

type CanonicalField = readonly [
  string,
  boolean,
  number,
  readonly Parameter[],
  readonly CanonicalField[],
  unknown,
  unknown,
]

/** @throws RangeError, TypeError for bytes that contradict themselves or pass the bounds */
export function arrowSchema(schema: FlatTable): ArrowSchema {
  const budget = { fields: mostFields }
  const fields = schema
    .tables(schemaSlots.fields, mostFields)
    .map((field) => canonicalField(field, budget, { level: 1, named: 0 }))
  const text = `${formatName}\n${JSON.stringify(fields)}`
  return { fingerprint: new Uint8Array(nodeCrypto().createHash("sha256").update(text).digest()), fields: fields.length }
}

/** @param place `named`: from which level on names count; a list or map keeps those of its own children out. */
function canonicalField(
  field: FlatTable,
  budget: { fields: number },
  place: { readonly level: number; readonly named: number },
): CanonicalField {
  if (--budget.fields < 0) throw new RangeError(`a schema has more than ${mostFields} fields`)
  if (place.level > mostLevels) throw new RangeError(`a schema has more than ${mostLevels} levels`)
  const code = field.uint8(fieldSlots.typeCode, 0)
  const type = field.table(fieldSlots.type)
  if (code === 0 || code > typeCodes.last || type === undefined)
    throw new RangeError(`a field has the unknown type ${code}`)
  const level = place.level + 1
  const named = listTypes.has(code) ? level + 1 : code === typeCodes.map ? level + 2 : 0
  const inherited = Math.max(named, place.named > level ? place.named : 0)
  return [
    place.level < place.named ? "" : (field.text(fieldSlots.name) ?? ""),
    field.flag(fieldSlots.nullable),
    code,
    parameters[code]?.(type) ?? [],
    field
      .tables(fieldSlots.children, mostFields)
      .map((child) => canonicalField(child, budget, { level, named: inherited })),
    canonicalDictionary(field.table(fieldSlots.dictionary)),
    canonicalExtension(field.tables(fieldSlots.metadata, mostFields)),
  ]
}

function canonicalDictionary(dictionary: FlatTable | undefined): readonly Parameter[] | null {
  if (dictionary === undefined) return null
  const index = dictionary.table(dictionarySlots.indexType)
  const [bits, signed] = index === undefined ? [32, true] : [index.int32(0, 0), index.flag(1)]
  return [bits, signed, dictionary.flag(dictionarySlots.isOrdered)]
}

function canonicalExtension(metadata: readonly FlatTable[]): readonly [string, string] | null {
  const value = (key: string): string | undefined =>
    metadata.find((pair) => pair.text(pairSlots.key) === key)?.text(pairSlots.value)
  const name = value("ARROW:extension:name")
  return name === undefined ? null : [name, value("ARROW:extension:metadata") ?? ""]
}
