import { Buffer } from "node:buffer"
import { DecodeError, Headers, type TopicName } from "@millrace/contract"
import { nodeCrypto } from "@millrace/runtime"
import { shown } from "../client/options.ts"
import type { OpenedContent, RecordOpener, SealedContent } from "./encryptor.ts"
import {
  counterBytes,
  formAt,
  forms,
  looksSealed,
  nonceBytes,
  readEnvelope,
  sealedHeader,
  tagBytes,
  topicBinding,
} from "./envelope.ts"
import { readHeaderBlock } from "./header-block.ts"
import { deriveSubkey, type KeyRing } from "./key-ring.ts"
import { type KnownSubkey, SubkeyCache } from "./subkey-cache.ts"

const cipherOptions = { authTagLength: tagBytes } as const

/** Takes records out of their envelopes, with any key of the ring. */
export class EnvelopeOpener implements RecordOpener {
  readonly #ring: KeyRing
  readonly #acceptsPlain: boolean
  readonly #nonce = Buffer.alloc(nonceBytes)
  readonly #known = new SubkeyCache()
  #last: KnownSubkey | undefined

  constructor(ring: KeyRing, options: { readonly acceptsPlain: boolean }) {
    this.#ring = ring
    this.#acceptsPlain = options.acceptsPlain
  }

  open(topic: TopicName, content: SealedContent): OpenedContent | undefined {
    const { payload } = content
    const envelope = payload === null ? tombstoneEnvelope(content.headers()) : payload
    if (!looksSealed(envelope)) {
      if (this.#acceptsPlain) return undefined
      throw new DecodeError('it is not encrypted. Option "plain" of the encryptor can accept such records')
    }
    const opened = this.openEnvelope(topic, envelope)
    if ((payload === null) === (opened.payload === null)) return opened
    throw new DecodeError("its envelope belongs to a record of the other kind: with a payload, or a tombstone")
  }

  /** @throws DecodeError when it is malformed, its key is not in the ring, or it does not decrypt */
  openEnvelope(topic: TopicName, envelope: Uint8Array): OpenedContent {
    const known = this.#subkey(envelope)
    const { prefix } = known
    const start = prefix.length
    const aad = associate(known, topic)
    aad.set(envelope.subarray(0, start))
    this.#nonce.set(envelope.subarray(start - counterBytes, start), nonceBytes - counterBytes)
    const end = envelope.length - tagBytes
    let plain: Buffer
    try {
      const decipher = nodeCrypto().createDecipheriv("aes-256-gcm", known.key, this.#nonce, cipherOptions)
      decipher.setAAD(aad)
      decipher.setAuthTag(envelope.subarray(end))
      plain = decipher.update(envelope.subarray(start, end))
      decipher.final()
    } catch (cause) {
      const { keyId } = readEnvelope(envelope)
      throw new DecodeError(
        `its tag does not fit: the bytes were altered, key ${shown(keyId)} is another one than it was encrypted with, or it was encrypted for another stream or topic`,
        { cause, context: { keyId } },
      )
    }
    return contentOf(envelope[formAt] as number, new Uint8Array(plain.buffer, plain.byteOffset, plain.length))
  }

  /** Most records come from the producer of the record before. */
  #subkey(envelope: Uint8Array): KnownSubkey {
    const last = this.#last
    if (last !== undefined && isSamePrefix(last.prefix, envelope)) return last
    const { keyId, salt, prefixBytes } = readEnvelope(envelope)
    const ringKey = this.#ring.get(keyId)
    if (ringKey === undefined) {
      throw new DecodeError(`key ${shown(keyId)} is not among the encryptor's: ${this.#ring.ids}`, {
        context: { keyId },
      })
    }
    const name = `${Buffer.from(salt).toString("latin1")}${keyId}`
    const known = this.#known.use(name, () => ({
      key: deriveSubkey(ringKey.key, salt),
      prefix: Buffer.from(envelope.subarray(0, prefixBytes)),
      aad: Buffer.alloc(0),
      stream: "",
      topic: "",
    }))
    this.#last = known
    return known
  }
}

/** Whether an envelope is under the same subkey: equal but for form and counter, and long enough to be one. */
function isSamePrefix(prefix: Buffer, envelope: Uint8Array): boolean {
  const end = prefix.length - counterBytes
  if (envelope.length < prefix.length + tagBytes) return false
  for (let i = 0; i < formAt; i++) if (prefix[i] !== envelope[i]) return false
  for (let i = formAt + 1; i < end; i++) if (prefix[i] !== envelope[i]) return false
  return true
}

function associate(known: KnownSubkey, topic: TopicName): Buffer {
  if (known.aad.length > 0 && known.topic === topic.topic && known.stream === topic.stream) return known.aad
  known.aad = Buffer.concat([known.prefix, topicBinding(topic)])
  known.stream = topic.stream
  known.topic = topic.topic
  return known.aad
}

function contentOf(form: number, plain: Uint8Array): OpenedContent {
  if (form === forms.payload) return { payload: plain, headers: Headers.empty }
  const { headers, end } = readHeaderBlock(plain)
  if (form === forms.headersAndPayload) return { payload: plain.subarray(end), headers }
  if (form === forms.tombstone && end === plain.length) return { payload: null, headers }
  throw new DecodeError(`its form is ${form}, which its content is not`)
}

/** What a tombstone's headers hold; nothing when it is not encrypted. */
function tombstoneEnvelope(headers: Headers): Uint8Array {
  const pieces = headers.getAll(sealedHeader)
  if (pieces.length === 1) return pieces[0]?.bytes as Uint8Array
  return Buffer.concat(pieces.map((piece) => piece.bytes))
}
