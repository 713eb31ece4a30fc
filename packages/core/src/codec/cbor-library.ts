/** What the CBOR codec uses of `cborg`, with what it adds: strict UTF-8, dates and bignums. */
import { isUtf8 } from "node:buffer"
import { DecodeError, InvalidError } from "@millrace/contract"
import { loadLibrary } from "./library.ts"
import { plainView, utf8TextWithMark } from "./utf8.ts"

interface Token {
  readonly type: { readonly major: number; readonly name: string }
  value: unknown
  readonly encodedLength?: number
}

interface Tokenizer {
  next(): Token
  pos(): number
  done(): boolean
}

type TagDecode = (content: () => unknown) => unknown

interface Cborg {
  readonly Token: new (type: unknown, value: unknown) => Token
  readonly Type: { readonly tag: unknown; readonly float: unknown; readonly bytes: unknown }
  readonly Tokenizer: new (data: Uint8Array, options: object) => Tokenizer
  encode(value: unknown, options: object): Uint8Array
  decode(payload: Uint8Array, options: object): unknown
}

/** Encoding and decoding with `cborg`, in the manner of Millrace. */
export interface CborLibrary {
  /** @throws whatever `cborg` throws for a value that it has no form for */
  encode(value: unknown): Uint8Array
  /** @throws DecodeError or an error of `cborg` for bytes that are not one value */
  decode(payload: Uint8Array, maps: "object" | "map"): unknown
}

let loaded: CborLibrary | undefined

/** @throws UnsupportedError when `cborg` is not installed */
export function cborLibrary(): CborLibrary {
  loaded ??= build(loadLibrary<Cborg>("cborg", "CBOR"))
  return loaded
}

function build(cborg: Cborg): CborLibrary {
  const { Token, Type, Tokenizer } = cborg
  const encodeOptions = {
    ignoreUndefinedProperties: true,
    mapSorter: undefined,
    typeEncoders: {
      Date: (date: Date) => [new Token(Type.tag, epochTag), new Token(Type.float, epochSeconds(date))],
      bigint: (value: bigint) => bignum(value),
    },
  }
  const bignum = (value: bigint): Token[] | null => {
    if (value >= -(2n ** 64n) && value < 2n ** 64n) return null
    const tag = value >= 0n ? positiveTag : negativeTag
    return [new Token(Type.tag, tag), new Token(Type.bytes, bytesOf(value >= 0n ? value : -1n - value))]
  }

  /** The tokens of `cborg`, whose texts are checked. */
  class StrictTokenizer extends Tokenizer {
    readonly #data: Uint8Array
    constructor(data: Uint8Array, options: object) {
      super(data, options)
      this.#data = data
    }
    override next(): Token {
      const start = this.pos()
      const token = super.next()
      if (token.type.major !== textMajor) return token
      const first = start + headBytes(this.#data[start] as number)
      const bytes = (): Uint8Array => this.#data.subarray(first, this.pos())
      if ((token.value as string).includes("\ufffd") && !isUtf8(bytes())) {
        throw new DecodeError(`the text at byte ${start} is not UTF-8`)
      }
      // The library's decoder takes a byte order mark for none of the text.
      if (this.#data[first] === markByte && this.pos() - first > 2) token.value = utf8TextWithMark(bytes())
      return token
    }
  }

  const optionsOf = (maps: boolean): object => ({
    allowBigInt: true,
    allowIndefinite: true,
    allowUndefined: true,
    rejectDuplicateMapKeys: true,
    useMaps: maps,
    tags,
  })
  const options = { object: optionsOf(false), map: optionsOf(true) }
  return {
    encode: (value) => cborg.encode(value, encodeOptions),
    decode(payload, maps) {
      const data = plainView(payload)
      const tokenizer = new StrictTokenizer(data, options[maps])
      try {
        return cborg.decode(data, { ...options[maps], tokenizer })
      } catch (error) {
        if (!(error instanceof RangeError)) throw error
        throw new DecodeError(`nested too deeply, at byte ${tokenizer.pos()}: ${error.message}`, { cause: error })
      }
    },
  }
}

const [dateTag, epochTag, positiveTag, negativeTag] = [0, 1, 2, 3]
const textMajor = 3
/** The first of the three bytes of a byte order mark. */
const markByte = 0xef
const mostBignumBytes = 512

const tags: TagDecode[] = []
tags[dateTag] = (content) => {
  const text = content()
  if (typeof text !== "string") throw new DecodeError("a date (tag 0) is not a text")
  return validDate(new Date(text))
}
tags[epochTag] = (content) => {
  const seconds = content()
  if (typeof seconds !== "number") throw new DecodeError("an epoch time (tag 1) is not a number of seconds")
  return validDate(new Date(Math.round(seconds * 1000)))
}
tags[positiveTag] = (content) => numeral(unsigned(content()))
tags[negativeTag] = (content) => numeral(-1n - unsigned(content()))

/** Beyond the year 140,000 the fraction of a double is too coarse for some milliseconds. */
function epochSeconds(date: Date): number {
  const ms = date.getTime()
  const seconds = ms / 1000
  if (Math.round(seconds * 1000) === ms) return seconds
  throw new InvalidError(`CBOR has no form for ${date.toISOString()}: its milliseconds are lost in an epoch time`)
}

function validDate(date: Date): Date {
  if (Number.isNaN(date.getTime())) throw new DecodeError("a date is out of range")
  return date
}

function numeral(value: bigint): number | bigint {
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : value
}

function unsigned(bytes: unknown): bigint {
  if (!(bytes instanceof Uint8Array)) throw new DecodeError("a bignum is not a byte string")
  if (bytes.length > mostBignumBytes)
    throw new DecodeError(`a bignum of ${bytes.length} bytes is longer than ${mostBignumBytes}`)
  return bytes.length === 0
    ? 0n
    : BigInt(`0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`)
}

function bytesOf(value: bigint): Uint8Array {
  const digits = value.toString(16)
  const even = digits.length % 2 === 0 ? digits : `0${digits}`
  return Uint8Array.from({ length: even.length / 2 }, (_, index) =>
    Number.parseInt(even.slice(2 * index, 2 * index + 2), 16),
  )
}

/** The bytes of a text's head: its first byte says how long its length is. */
function headBytes(first: number): number {
  const minor = first & 31
  return minor < 24 ? 1 : 1 + 2 ** (minor - 24)
}
