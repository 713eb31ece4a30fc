import { InvalidError } from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"

/** How many random nonces a key may have at all (NIST SP 800-38D, 8.3): behind it two of them are too likely to be equal. */
export const mostRandomNonces: number = 2 ** 32

/** Counts of this process, by the key's digest: whoever uses a key shares its count. */
const uses = new Map<string, KeyUse>()

/** How often this process has encrypted under one key with a random nonce. It counts from 0 in each process. */
export class KeyUse {
  #records = 0

  /** The count of a key, the same for the same bytes. */
  static of(key: Uint8Array): KeyUse {
    const digest = nodeCrypto().createHash("sha256").update(key).digest("base64")
    let use = uses.get(digest)
    if (use === undefined) {
      use = new KeyUse()
      uses.set(digest, use)
    }
    return use
  }

  /** Counts one record. @throws InvalidError once `limit` are encrypted; that one is not */
  spend(limit: number): void {
    if (this.#records >= limit) {
      throw new InvalidError(
        `this process has encrypted ${this.#records} records under this key, and its limit is ${limit}: with more, two random nonces may be equal and give the key away. Take a new key, or the format of encryptor(), which has no such limit`,
        { context: { encryptedRecords: this.#records, limitRecords: limit } },
      )
    }
    this.#records++
  }
}
