import { Buffer } from "node:buffer"
import type { KeyObject } from "node:crypto"
import type { Random } from "@millrace/runtime"
import { newPrefix } from "./envelope.ts"
import { deriveSubkey, type RingKey, saltBytes } from "./key-ring.ts"

/** When a subkey has done enough. */
export interface SubkeyLimits {
  readonly records: number
  readonly bytes: number
}

/**
 * 2^32 records, which is all that the written part of the nonce counts, or 256 GiB, far within what AES-GCM may encrypt under one key
 * (NIST SP 800-38D).
 */
export const subkeyLimits: SubkeyLimits = { records: 2 ** 32, bytes: 2 ** 38 }

/**
 * The subkeys of one producer, one after another: each has a salt of its own and counts its records, so that no pair of key and nonce
 * comes twice, whichever topics and partitions the records go to. It lives in memory alone: a process that is restored twice from one
 * snapshot of a machine would count on twice.
 */
export class SubkeySequence {
  readonly #key: RingKey
  readonly #random: Random
  readonly #limits: SubkeyLimits
  #subkey: KeyObject
  #prefix: Buffer
  #records = 0
  #bytes = 0

  constructor(key: RingKey, random: Random, limits: SubkeyLimits = subkeyLimits) {
    this.#key = key
    this.#random = random
    this.#limits = limits
    const salt = randomBytes(random, saltBytes)
    this.#subkey = deriveSubkey(key.key, salt)
    this.#prefix = newPrefix(key.idBytes, salt)
  }

  /** The subkey for what `next` counted last. */
  get subkey(): KeyObject {
    return this.#subkey
  }

  /** The start of its envelopes; another array for each subkey. */
  get prefix(): Buffer {
    return this.#prefix
  }

  /** The counter for one more record of so many bytes, under the present subkey or a new one. */
  next(bytes: number): number {
    if (this.#records >= this.#limits.records || (this.#bytes + bytes > this.#limits.bytes && this.#records > 0)) {
      this.#renew()
    }
    this.#bytes += bytes
    return this.#records++
  }

  #renew(): void {
    const salt = randomBytes(this.#random, saltBytes)
    this.#subkey = deriveSubkey(this.#key.key, salt)
    this.#prefix = newPrefix(this.#key.idBytes, salt)
    this.#records = 0
    this.#bytes = 0
  }
}

/** So many bytes of chance; a multiple of 4. */
function randomBytes(random: Random, count: number): Buffer {
  const bytes = Buffer.allocUnsafe(count)
  for (let at = 0; at < count; at += 4) bytes.writeUInt32BE(random.uint32(), at)
  return bytes
}
