/** As much of WebAssembly's binary format as `short-hash.ts` needs: expressions as byte lists, put together to a module. */

export type Code = readonly number[]

export const i32 = 0x7f
export const i64 = 0x7e
type ValueType = typeof i32 | typeof i64

/** A function: its types, and its body over the numbers of its locals, parameters first. */
export interface WasmFunction {
  readonly parameters: readonly ValueType[]
  readonly result: ValueType | undefined
  readonly locals: readonly ValueType[]
  readonly body: Code
}

export function func(
  parameters: readonly ValueType[],
  shape: { readonly result: ValueType | undefined; readonly locals: readonly ValueType[] },
  body: (...locals: number[]) => readonly Code[],
): WasmFunction {
  const numbers = [...parameters, ...shape.locals].map((_, index) => index)
  return { parameters, ...shape, body: body(...numbers).flat() }
}

const binary =
  (opcode: number) =>
  (left: Code, right: Code): Code => [...left, ...right, opcode]

export const add32: (left: Code, right: Code) => Code = binary(0x6a)
export const sub32: (left: Code, right: Code) => Code = binary(0x6b)
export const shl32: (left: Code, right: Code) => Code = binary(0x74)
export const shr32: (left: Code, right: Code) => Code = binary(0x76)
/** Signed. */
export const gt32: (left: Code, right: Code) => Code = binary(0x4a)
/** Signed. */
export const ge32: (left: Code, right: Code) => Code = binary(0x4e)
export const add64: (left: Code, right: Code) => Code = binary(0x7c)
export const mul64: (left: Code, right: Code) => Code = binary(0x7e)
export const and64: (left: Code, right: Code) => Code = binary(0x83)
export const xor64: (left: Code, right: Code) => Code = binary(0x85)
/** Unsigned. */
export const shr64: (left: Code, right: Code) => Code = binary(0x88)

export const get = (local: number): Code => [0x20, local]
export const set = (local: number, value: Code): Code => [...value, 0x21, local]
export const const32 = (value: number): Code => [0x41, ...signedLeb(BigInt(value))]
/** The bits of an unsigned number. */
export const const64 = (value: bigint): Code => [0x42, ...signedLeb(BigInt.asIntN(64, value))]
export const extend = (value: Code): Code => [...value, 0xad]
export const load32 = (address: Code, offset: number): Code => [...address, 0x28, 0, ...leb(offset)]
export const load64 = (address: Code, offset: number): Code => [...address, 0x29, 0, ...leb(offset)]
export const store64 = (address: Code, value: Code): Code => [...address, ...value, 0x37, 0, 0]
/** By the number of the function in the module. */
export const call = (target: number, ...values: readonly Code[]): Code => [...values.flat(), 0x10, target]

const noResult = 0x40
const end = 0x0b

export const block = (body: readonly Code[]): Code => [0x02, noResult, ...body.flat(), end]
export const loop = (body: readonly Code[]): Code => [0x03, noResult, ...body.flat(), end]
export const ifElse = (condition: Code, yes: readonly Code[], no: readonly Code[]): Code => [
  ...[...condition, 0x04, noResult, ...yes.flat()],
  ...[0x05, ...no.flat(), end],
]
/** Depth 0 is the innermost block or loop: out of the one, to the start of the other. */
export const branch = (depth: number): Code => [0x0c, depth]
export const branchIf = (depth: number, condition: Code): Code => [...condition, 0x0d, depth]

/** A module with a memory of its own, exported as `memory`, and one of its functions exported as `run`. */
export function moduleBytes(
  functions: readonly WasmFunction[],
  shape: { readonly pages: number; readonly exported: number },
): Uint8Array<ArrayBuffer> {
  const types = functions.map(({ parameters, result }) => [
    ...[0x60, parameters.length, ...parameters],
    ...(result === undefined ? [0] : [1, result]),
  ])
  const bodies = functions.map(({ locals, body }) => {
    const code = [...leb(locals.length), ...locals.flatMap((type) => [1, type]), ...body, end]
    return [...leb(code.length), ...code]
  })
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, vector(types)),
    ...section(3, vector(functions.map((_, index) => [index]))),
    ...section(5, vector([[0, ...leb(shape.pages)]])),
    ...section(
      7,
      vector([
        [...text("memory"), 2, 0],
        [...text("run"), 0, shape.exported],
      ]),
    ),
    ...section(10, vector(bodies)),
  ])
}

function section(id: number, content: Code): Code {
  return [id, ...leb(content.length), ...content]
}

function vector(items: readonly Code[]): Code {
  return [...leb(items.length), ...items.flat()]
}

function text(value: string): Code {
  return [value.length, ...Buffer.from(value)]
}

function leb(value: number): Code {
  const bytes: number[] = []
  let rest = value
  while (rest > 0x7f) {
    bytes.push((rest & 0x7f) | 0x80)
    rest >>>= 7
  }
  bytes.push(rest)
  return bytes
}

function signedLeb(value: bigint): Code {
  const bytes: number[] = []
  let rest = value
  for (;;) {
    const low = Number(rest & 0x7fn)
    rest >>= 7n
    if ((rest === 0n && low < 0x40) || (rest === -1n && low >= 0x40)) return [...bytes, low]
    bytes.push(low | 0x80)
  }
}
