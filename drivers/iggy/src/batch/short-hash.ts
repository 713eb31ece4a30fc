/**
 * XXH3-64 (seed 0) of many short messages at one go, in WebAssembly: for messages of 17 to 240 bytes, which most are, a native call for
 * each takes longer than the hash. The module is put together here from the formulas of docs/drivers/iggy-wire.md: Hashes.
 */
import {
  add32,
  add64,
  and64,
  block,
  branch,
  branchIf,
  type Code,
  call,
  const32,
  const64,
  extend,
  func,
  ge32,
  get,
  gt32,
  i32,
  i64,
  ifElse,
  load32,
  load64,
  loop,
  moduleBytes,
  mul64,
  set,
  shl32,
  shr32,
  shr64,
  store64,
  sub32,
  xor64,
} from "./wasm-assembler.ts"

/** The longest that is hashed; the shortest is 17 bytes, and a message without payload has 40. */
export const longestShortBytes = 240

/** How much fits in at one go: bytes of messages, and messages. */
export const roomBytes: number = 160 << 10
export const roomMessages = 4096

const secret = Buffer.from(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
  "hex",
)

/** Where in the memory what lies: the secret at 0, then the hashes, then the messages. */
const hashesAt = 256
const messagesAt: number = hashesAt + roomMessages * 8
const pages = 4
const pageBytes = 64 << 10

/** Offsets within a message (see `layout.ts`). */
const headersLengthAt = 32
const payloadLengthAt = 36
const hashedFrom = 8
const messageHeaderBytes = 48

const prime = 0x9e3779b185ebca87n
const avalanchePrime = 0x165667919e3779f9n
const low32 = 0xffff_ffffn

/** Both halves of the 128-bit product, xored. */
const fold = func(
  [i64, i64],
  { result: i64, locals: [i64, i64, i64, i64, i64, i64] },
  (a, b, aHigh, bHigh, low, cross, high, carry) => {
    const half = (local: number): Code => and64(get(local), const64(low32))
    return [
      set(aHigh, shr64(get(a), const64(32n))),
      set(bHigh, shr64(get(b), const64(32n))),
      set(low, mul64(half(a), half(b))),
      set(cross, mul64(get(aHigh), half(b))),
      set(high, mul64(half(a), get(bHigh))),
      set(carry, add64(add64(shr64(get(low), const64(32n)), half(cross)), get(high))),
      xor64(
        mul64(get(a), get(b)),
        add64(add64(shr64(get(cross), const64(32n)), shr64(get(carry), const64(32n))), mul64(get(aHigh), get(bHigh))),
      ),
    ]
  },
)

/** Sixteen bytes at `data` with sixteen of the secret at `key`. */
const mix = func([i32, i32], { result: i64, locals: [] }, (data, key) => [
  call(0, xor64(load64(get(data), 0), load64(get(key), 0)), xor64(load64(get(data), 8), load64(get(key), 8))),
])

const avalanche = func([i64], { result: i64, locals: [] }, (h) => [
  set(h, xor64(get(h), shr64(get(h), const64(37n)))),
  set(h, mul64(get(h), const64(avalanchePrime))),
  xor64(get(h), shr64(get(h), const64(32n))),
])

/** Of `n` bytes at `data`, 17 to 240. */
const hash = func([i32, i32], { result: i64, locals: [i64, i32] }, (data, n, sum, i) => {
  const plus = (...terms: readonly Code[]): Code =>
    set(
      sum,
      terms.reduce((left, right) => add64(left, right), get(sum)),
    )
  const sixteen = (local: number): Code => shl32(get(local), const32(4))
  const tail = (bytes: Code): Code => sub32(add32(get(data), get(n)), bytes)
  const upTo128: readonly Code[] = [
    set(i, shr32(sub32(get(n), const32(1)), const32(5))),
    loop([
      plus(
        call(1, add32(get(data), sixteen(i)), shl32(get(i), const32(5))),
        call(1, tail(sixteen2(i)), add32(shl32(get(i), const32(5)), const32(16))),
      ),
      set(i, sub32(get(i), const32(1))),
      branchIf(0, ge32(get(i), const32(0))),
    ]),
  ]
  function sixteen2(local: number): Code {
    return shl32(add32(get(local), const32(1)), const32(4))
  }
  const above128: readonly Code[] = [
    set(i, const32(0)),
    loop([
      plus(call(1, add32(get(data), sixteen(i)), sixteen(i))),
      set(i, add32(get(i), const32(1))),
      branchIf(0, gt32(const32(8), get(i))),
    ]),
    set(sum, call(2, get(sum))),
    block([
      loop([
        branchIf(1, ge32(get(i), shr32(get(n), const32(4)))),
        plus(call(1, add32(get(data), sixteen(i)), add32(shl32(sub32(get(i), const32(8)), const32(4)), const32(3)))),
        set(i, add32(get(i), const32(1))),
        branch(0),
      ]),
    ]),
    plus(call(1, tail(const32(16)), const32(119))),
  ]
  return [
    set(sum, mul64(extend(get(n)), const64(prime))),
    ifElse(gt32(get(n), const32(128)), above128, upTo128),
    call(2, get(sum)),
  ]
})

/** Of each message from `at` to `end`, one after the other to `hashesAt`. */
const hashAll = func([i32, i32], { result: undefined, locals: [i32, i32] }, (at, end, out, length) => [
  set(out, const32(hashesAt)),
  block([
    loop([
      branchIf(1, ge32(get(at), get(end))),
      set(
        length,
        add32(
          add32(load32(get(at), headersLengthAt), load32(get(at), payloadLengthAt)),
          const32(messageHeaderBytes - hashedFrom),
        ),
      ),
      store64(get(out), call(3, add32(get(at), const32(hashedFrom)), get(length))),
      set(out, add32(get(out), const32(8))),
      set(at, add32(get(at), add32(get(length), const32(hashedFrom)))),
      branch(0),
    ]),
  ]),
])

/** As much of the global as is used; its types come with the DOM's, which are not for programs of Node. */
interface WebAssemblyGlobal {
  Module: new (bytes: Uint8Array) => object
  Instance: new (module: object) => { readonly exports: Exports }
}
interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer }
  run(at: number, end: number): void
}

const { Module, Instance } = (globalThis as unknown as { readonly WebAssembly: WebAssemblyGlobal }).WebAssembly
const code = moduleBytes([fold, mix, avalanche, hash, hashAll], { pages, exported: 4 })
const { memory: exportedMemory, run } = new Instance(new Module(code)).exports
const memory = new Uint8Array(exportedMemory.buffer, 0, pages * pageBytes)
const words = new Uint32Array(memory.buffer, hashesAt, roomMessages * 2)
memory.set(secret, 0)

/**
 * Hashes the messages that lie from `from` to `to`, from their ids on. Within `roomBytes` and `roomMessages`, each of at most
 * `longestShortBytes` hashed bytes; their lengths must have been checked. Answers two words a message, the low one first, in memory that
 * the next call writes over.
 */
export function hashShortMessages(bytes: Buffer, from: number, to: number): Uint32Array {
  memory.set(bytes.subarray(from, to), messagesAt)
  run(messagesAt, messagesAt + to - from)
  return words
}
