import { Buffer } from "node:buffer"
import fc from "fast-check"

/** What the arbitrary values of a format may have. */
export interface PlainValueOptions {
  readonly keys?: fc.Arbitrary<string>
  readonly bytes?: boolean
  /** True: any; a number: within so many ms of 1970. */
  readonly dates?: boolean | number
  readonly bigints?: { readonly min: bigint; readonly max: bigint }
}

const text = fc.string({ unit: "binary", maxLength: 12 })
const key = text.filter((name) => name !== "__proto__")

/** Values that a format keeps as they are: what is read must be deeply and strictly equal, but for bigints that a number holds. */
export function plainValue({ keys = key, bytes, dates, bigints }: PlainValueOptions): fc.Arbitrary<unknown> {
  const leaves: fc.Arbitrary<unknown>[] = [
    fc.constant(null),
    fc.boolean(),
    text,
    fc.integer(),
    fc.maxSafeInteger(),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => (number === 0 ? 0 : number)),
  ]
  if (bytes === true) leaves.push(fc.uint8Array({ maxLength: 40 }))
  if (dates !== undefined && dates !== false) {
    const mostMs = dates === true ? 8.64e15 : dates
    leaves.push(fc.date({ noInvalidDate: true, min: new Date(-mostMs), max: new Date(mostMs) }))
  }
  if (bigints !== undefined) {
    const { min, max } = bigints
    leaves.push(fc.oneof(fc.bigInt({ min, max: -(2n ** 53n) - 1n }), fc.bigInt({ min: 2n ** 53n + 1n, max })))
  }
  return fc.letrec((tie) => ({
    value: fc.oneof({ depthSize: "small", withCrossShrink: true }, ...leaves, tie("array"), tie("object")),
    array: fc.array(tie("value"), { maxLength: 20 }),
    object: fc.dictionary(keys, tie("value"), { maxKeys: 20, noNullPrototype: true }),
  })).value
}

/** Bytes given as hexadecimal digits, with or without spaces. */
export function hexBytes(digits: string): Uint8Array {
  return new Uint8Array(Buffer.from(digits.replaceAll(" ", ""), "hex"))
}

/** The digits of bytes. */
export function hexText(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex")
}
