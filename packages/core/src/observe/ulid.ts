import type { Clock, Random } from "@millrace/runtime"

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

/** A new ULID: 48 bits of Unix milliseconds and 80 random bits as 26 characters, so that texts sort by time (github.com/ulid/spec). */
export function newUlid(clock: Clock, random: Random): string {
  let value = (clock.nowMicros() / 1000n) & 0xffff_ffff_ffffn
  value = (value << 16n) | BigInt(random.uint32() & 0xffff)
  value = (value << 32n) | BigInt(random.uint32())
  value = (value << 32n) | BigInt(random.uint32())
  let text = ""
  for (let shift = 125n; shift >= 0n; shift -= 5n) text += alphabet[Number((value >> shift) & 31n)]
  return text
}
