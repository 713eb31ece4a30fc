import { Buffer } from "node:buffer"
import type { KeyObject } from "node:crypto"
import { InvalidError } from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"
import { shown } from "../client/options.ts"

/** Of every key and subkey (AES-256). */
const keyBytes = 32
/** Of the salt that a producer's subkey is derived with. */
export const saltBytes: number = 16
/** The longest key id, in UTF-8. */
export const longestKeyIdBytes: number = 64

/** What the subkeys are for: HKDF's `info`. */
const purpose = Buffer.from("millrace/encryption/1")

/** A key with its id. */
export interface RingKey {
  readonly id: string
  /** The id as it is stored. */
  readonly idBytes: Buffer
  readonly key: KeyObject
}

/** The keys of an encryptor: one that encrypts, and all that decrypt. They leave it only as subkeys. */
export class KeyRing {
  readonly current: RingKey
  readonly #keys = new Map<string, RingKey>()

  /** @throws InvalidError that names the key id and what is wrong, never the key */
  constructor(keys: Readonly<Record<string, Uint8Array>>, current: string) {
    if (typeof keys !== "object" || keys === null || Array.isArray(keys)) {
      // Not the text itself, which may be a key.
      const given = typeof keys === "string" ? "a string" : shown(keys)
      throw new InvalidError(`encryptor: option "keys" is ${given}; it must be an object of key ids and keys`)
    }
    for (const [id, key] of Object.entries(keys)) {
      const idBytes = checkKeyId(id)
      this.#keys.set(id, { id, idBytes, key: secretKey(key, `encryptor: key ${shown(id)}`) })
    }
    const chosen = typeof current === "string" ? this.#keys.get(current) : undefined
    if (chosen === undefined) {
      throw new InvalidError(
        `encryptor: option "current" is ${shown(current)}; it must be the id of one of its keys: ${this.ids || "there are none"}`,
      )
    }
    this.current = chosen
  }

  get(id: string): RingKey | undefined {
    return this.#keys.get(id)
  }

  /** The ids, for error messages. */
  get ids(): string {
    return [...this.#keys.keys()].map((id) => shown(id)).join(", ")
  }
}

/** A key as node:crypto holds it, out of reach for logs and inspection. @throws InvalidError unless it has 32 bytes */
export function secretKey(bytes: unknown, what: string): KeyObject {
  if (!(bytes instanceof Uint8Array)) {
    throw new InvalidError(`${what} must be a Uint8Array of ${keyBytes} bytes, not ${typeof bytes}`)
  }
  if (bytes.length !== keyBytes) throw new InvalidError(`${what} has ${bytes.length} bytes; it must have ${keyBytes}`)
  return nodeCrypto().createSecretKey(bytes)
}

/** The key of one producer instance: HKDF-SHA256 (RFC 5869) of a ring's key with the instance's salt. */
export function deriveSubkey(key: KeyObject, salt: Uint8Array): KeyObject {
  return nodeCrypto().createSecretKey(new Uint8Array(nodeCrypto().hkdfSync("sha256", key, salt, purpose, keyBytes)))
}

function checkKeyId(id: string): Buffer {
  const bytes = Buffer.from(id)
  if (bytes.length >= 1 && bytes.length <= longestKeyIdBytes && id.isWellFormed()) return bytes
  throw new InvalidError(
    `encryptor: key id ${shown(id)} has ${bytes.length} bytes; it must have 1 to ${longestKeyIdBytes} bytes of UTF-8`,
  )
}
