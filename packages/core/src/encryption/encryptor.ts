import type { DecodeError, Headers, Manifest, TopicName } from "@millrace/contract"
import type { Random } from "@millrace/runtime"
import { OptionReader } from "../client/options.ts"
import type { SendableRecord } from "../record/outgoing-record.ts"
import { EnvelopeOpener } from "./envelope-opener.ts"
import { EnvelopeSealer } from "./envelope-sealer.ts"
import { KeyRing } from "./key-ring.ts"

/**
 * Client-side encryption, as data that `connect`, producers and consumers take: made by `encryptor` or `iggyEncryptor`, and stateless, so
 * that one may serve any number of clients.
 */
export interface Encryptor {
  /** How encrypted records look, for error messages. */
  readonly format: string
  /** The writing side of one producer. */
  sealer(context: SealerContext): RecordSealer
  /** The reading side of one consumer or cursor. */
  opener(): RecordOpener
}

/** What a sealer gets from the client that it works for. */
export interface SealerContext {
  readonly limits: Manifest["limits"]
  /** For salts and nonces: the system's strong randomness, except in simulations. */
  readonly random: Random
}

/** Encrypts the records of one producer. What it answers is what is sent, each time that it is sent. */
export interface RecordSealer {
  /**
   * The record with its payload and all its headers encrypted; key, id, time and partition stay as they are.
   * @throws RecordTooLargeError when the result is above a limit of the backend, InvalidError for what the format cannot hold
   */
  seal(topic: TopicName, record: SendableRecord): SendableRecord
  /**
   * Whether this is a record that was encrypted before, and came back from a failed publish.
   * @throws InvalidError when it was encrypted for another topic
   */
  isSealed(topic: TopicName, record: SendableRecord): boolean
}

/** A record as it was read, with what decides about its decryption. */
export interface SealedContent {
  readonly payload: Uint8Array | null
  /** Decoded when they are looked at. */
  readonly headers: () => Headers
}

/** What an encrypted record held. */
export interface OpenedContent {
  readonly payload: Uint8Array | null
  /** Or why they cannot be read although the payload can. */
  readonly headers: Headers | DecodeError
}

/** Decrypts the records of one consumer or cursor. */
export interface RecordOpener {
  /**
   * What the record held; `undefined` for one that is not encrypted and is taken as it is.
   * @throws DecodeError, without a position, when the record does not decrypt
   */
  open(topic: TopicName, content: SealedContent): OpenedContent | undefined
}

/** Options of `encryptor`. */
export interface EncryptorOptions {
  /** The id of the key that encrypts. */
  readonly current: string
  /**
   * Every key that decrypts, by its id, the current one among them. Ids have 1 to 64 bytes of UTF-8 and are stored with every record; keys
   * have 32 bytes and are copied.
   */
  readonly keys: Readonly<Record<string, Uint8Array>>
  /**
   * What to do with records that are not encrypted. `refuse` (default): they are DecodeErrors, so that nobody can slip one in. `accept`:
   * they are read as they are, for a topic that was written without encryption before.
   */
  readonly plain?: "refuse" | "accept"
}

/**
 * Encryption of payloads and headers with AES-256-GCM under a subkey for each producer (seed 001; the layout is in `envelope.ts`). Key id,
 * stream and topic are bound to each record: a copy in another topic does not decrypt.
 *
 * To rotate: give every reader the new key, then make it `current` for the writers, and drop the old one when no record under it is left.
 * @throws InvalidError for a key that has not 32 bytes, an id that cannot be right, or a current key that is not among the keys
 */
export function encryptor(options: EncryptorOptions): Encryptor {
  const read = new OptionReader<EncryptorOptions>("encryptor", options, ["current", "keys", "plain"])
  const acceptsPlain = read.choice("plain", ["refuse", "accept"], "refuse") === "accept"
  const ring = new KeyRing(options?.keys, options?.current)
  return Object.freeze({
    format: "millrace",
    sealer: (context: SealerContext) => new EnvelopeSealer(ring, context),
    opener: () => new EnvelopeOpener(ring, { acceptsPlain }),
  })
}
