/** What the benchmarks write: bytes without a pattern, the same in every run. */
import { seededRandom } from "@millrace/runtime"

/** `count` payloads of `bytes` bytes each, all views of one buffer, no two alike. */
export function payloads(count: number, bytes: number): Uint8Array[] {
  const random = seededRandom(20_261_129)
  const buffer = new Uint8Array(count * bytes)
  for (let at = 0; at < buffer.length; at++) buffer[at] = random.uint32()
  return Array.from({ length: count }, (_, index) => buffer.subarray(index * bytes, (index + 1) * bytes))
}

/** The payloads one behind the other, in memory that a worker thread can see too. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(new SharedArrayBuffer(parts.reduce((sum, part) => sum + part.length, 0)))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}
