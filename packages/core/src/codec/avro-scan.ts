/**
 * Looks over Avro bytes before they are decoded, by the schema that wrote them (https://avro.apache.org/docs/1.12.0/specification/,
 * "Binary Encoding"). The library believes every count of a block, and reads on behind the end until the last moment: a few bytes could keep
 * it busy for hours. What passes is one whole value, with texts in UTF-8.
 */
import { DecodeError } from "@millrace/contract"
import type { AvscType } from "./avro-library.ts"
import { binaryLevels } from "./plain-values.ts"
import { isTextAt } from "./utf8.ts"

/** Elements without a byte of their own (nulls, empty records) in one payload: their number is told by counts alone, and arrays may lie in arrays. */
const mostEmptyItems = 100_000
const longestVarint = 10

/** Passes for one whole value. */
export type AvroScan = (bytes: Uint8Array) => void

type Skip = (place: Place, level: number) => void

/** Where a scan is. */
class Place {
  readonly bytes: Uint8Array
  at = 0
  /** The elements so far that have no byte of their own. */
  empty = 0

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  skip(count: number): void {
    const { at, bytes } = this
    if (count < 0 || count > bytes.length - at)
      throw new DecodeError(`the bytes end inside of the value: ${count} are wanted at byte ${at}`)
    this.at = at + count
  }

  /** A varint, zigzag. Beyond 2^53 it is not exact, and it is too large for whatever is counted here. */
  long(): number {
    let value = 0
    let factor = 1
    for (let index = 0; index < longestVarint; index++) {
      const byte = this.bytes[this.at]
      if (byte === undefined) throw new DecodeError(`the bytes end inside of a number, at byte ${this.at}`)
      this.at++
      value += (byte & 127) * factor
      if (byte < 128) return value % 2 === 0 ? value / 2 : -(value + 1) / 2
      factor *= 128
    }
    throw new DecodeError(`the number that ends at byte ${this.at} has more than ${longestVarint} bytes`)
  }
}

/**
 * The scan for values that this type wrote.
 * @throws DecodeError, from the scan: what is wrong, and at which byte
 */
export function avroScan(type: AvscType): AvroScan {
  const skip = skipOf(type, new Map())
  return (bytes) => {
    const place = new Place(bytes)
    skip(place, 0)
    if (place.at !== bytes.length) {
      throw new DecodeError(`${bytes.length - place.at} bytes follow the value, from byte ${place.at} on`)
    }
  }
}

function skipOf(type: AvscType, known: Map<AvscType, Skip>): Skip {
  const before = known.get(type)
  if (before !== undefined) return before
  // A type that holds itself finds this in place of its own scan, which is not there yet.
  let made: Skip | undefined
  known.set(type, (place, level) => (made as Skip)(place, level))
  made = makeSkip(type, known)
  known.set(type, made)
  return made
}

function makeSkip(type: AvscType, known: Map<AvscType, Skip>): Skip {
  const { typeName } = type
  if (type.underlyingType !== undefined) return skipOf(type.underlyingType, known)
  if (type.types !== undefined) return skipUnion(type.types.map((branch) => skipOf(branch, known)))
  if (type.fields !== undefined) return skipRecord(type.fields.map((field) => skipOf(field.type, known)))
  if (type.itemsType !== undefined) return skipBlocks(skipOf(type.itemsType, known))
  if (type.valuesType !== undefined) return skipEntries(skipOf(type.valuesType, known))
  switch (typeName) {
    case "null":
      return () => {}
    case "boolean":
      return skipBoolean
    case "float":
      return (place) => place.skip(4)
    case "double":
      return (place) => place.skip(8)
    case "bytes":
      return (place) => place.skip(place.long())
    case "string":
      return skipText
    case "fixed":
      return (place) => place.skip(type.size as number)
    case "enum":
      return skipEnum((type.symbols as readonly string[]).length)
    default:
      return (place) => void place.long()
  }
}

function skipBoolean(place: Place): void {
  const byte = place.bytes[place.at]
  if (byte !== undefined && byte > 1) throw new DecodeError(`the boolean at byte ${place.at} is ${byte}`)
  place.skip(1)
}

function skipText(place: Place): void {
  const length = place.long()
  const from = place.at
  place.skip(length)
  if (!isTextAt(place.bytes, from, place.at)) throw new DecodeError(`the text at byte ${from} is not UTF-8`)
}

function skipEnum(symbols: number): Skip {
  return (place) => {
    const index = place.long()
    if (index < 0 || index >= symbols)
      throw new DecodeError(`the enum has ${symbols} symbols, and none is number ${index}`)
  }
}

function skipUnion(branches: readonly Skip[]): Skip {
  return (place, level) => {
    const index = place.long()
    const branch = branches[index]
    if (branch === undefined)
      throw new DecodeError(`the union has ${branches.length} branches, and none is number ${index}`)
    branch(place, level)
  }
}

function skipRecord(fields: readonly Skip[]): Skip {
  return (place, level) => {
    if (level >= binaryLevels) throw new DecodeError(`nested deeper than ${binaryLevels} levels, at byte ${place.at}`)
    for (const field of fields) field(place, level + 1)
  }
}

/** Blocks of an array: a count, when it is negative the bytes that they take, the items; a count of 0 ends it. */
function skipBlocks(item: Skip): Skip {
  return (place, level) => {
    if (level >= binaryLevels) throw new DecodeError(`nested deeper than ${binaryLevels} levels, at byte ${place.at}`)
    for (let count = place.long(); count !== 0; count = place.long()) {
      if (count < 0) {
        count = -count
        place.long()
      }
      for (let index = 0; index < count; index++) {
        const before = place.at
        item(place, level + 1)
        if (place.at === before && ++place.empty > mostEmptyItems) {
          throw new DecodeError(`arrays of more than ${mostEmptyItems} items without a byte each, at byte ${before}`)
        }
      }
    }
  }
}

function skipEntries(value: Skip): Skip {
  return skipBlocks((place, level) => {
    const start = place.at
    skipText(place)
    if (isPrototypeKey(place.bytes, start, place.at)) {
      throw new DecodeError(`the key at byte ${start} is __proto__, which means something else in JavaScript`)
    }
    value(place, level)
  })
}

/** A length of 9, which is written as 18, and the text `__proto__`. */
function isPrototypeKey(bytes: Uint8Array, start: number, end: number): boolean {
  if (end - start !== prototypeKey.length) return false
  return prototypeKey.every((byte, index) => bytes[start + index] === byte)
}

const prototypeKey = Uint8Array.of(18, ...new TextEncoder().encode("__proto__"))
