/** Where producers and consumers meet their encryptor. */
import { InvalidError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import { indexed, type SendableRecord } from "../record/outgoing-record.ts"
import type { Encryptor, RecordOpener, RecordSealer } from "./encryptor.ts"

/** @throws InvalidError for anything but an encryptor */
export function checkEncryptor(owner: string, option: Encryptor): Encryptor {
  const { sealer, opener } = (option ?? {}) as Partial<Encryptor>
  if (typeof sealer === "function" && typeof opener === "function") return option
  // Not the text itself, which may be a key.
  const given = typeof option === "string" ? "a string" : shown(option)
  throw new InvalidError(
    `${owner}: option "encryptor" is ${given}; it must be what encryptor() or iggyEncryptor() gives`,
  )
}

/** An encryptor of one's own, or `false` to do without the client's. @throws InvalidError for anything else */
export function checkEncryptorChoice(
  owner: string,
  option: Encryptor | false | undefined,
): Encryptor | false | undefined {
  return option === undefined || option === false ? option : checkEncryptor(owner, option)
}

/** The writing side of a producer: of its own encryptor, else of the client's, unless it says `false`. */
export function sealerOf(client: ClientContext, own: Encryptor | false | undefined): RecordSealer | undefined {
  const encryptor = own ?? client.encryptor
  if (encryptor === undefined || encryptor === false) return undefined
  return encryptor.sealer({ limits: client.session.manifest.limits, random: client.random })
}

/** The reading side of a consumer or cursor, in the same way. */
export function openerOf(client: ClientContext, own: Encryptor | false | undefined): RecordOpener | undefined {
  const encryptor = own ?? client.encryptor
  return encryptor === undefined || encryptor === false ? undefined : encryptor.opener()
}

/** Whether a consumer decrypts: with an encryptor of its own, or the client's. */
export function isEncrypted(client: ClientContext, own: Encryptor | false | undefined): boolean {
  const encryptor = own ?? client.encryptor
  return encryptor !== undefined && encryptor !== false
}

/** One record as it is sent: encrypted, where there is a sealer. @throws what `seal` throws */
export function sealOne(sealer: RecordSealer | undefined, topic: TopicName, record: SendableRecord): SendableRecord {
  return sealer === undefined ? record : sealer.seal(topic, record)
}

/** The records of a call in the same way. @throws what `seal` throws, naming the record by its index; then nothing is sent */
export function sealAll(
  sealer: RecordSealer | undefined,
  topic: TopicName,
  records: readonly SendableRecord[],
): readonly SendableRecord[] {
  if (sealer === undefined) return records
  const sealed = new Array<SendableRecord>(records.length)
  let index = 0
  try {
    for (; index < records.length; index++) sealed[index] = sealer.seal(topic, records[index] as SendableRecord)
  } catch (error) {
    indexed(index, () => {
      throw error
    })
  }
  return sealed
}

/**
 * The records of `topic.batch`, encrypted as far as they are not yet: those of a failed publish come back as they were sent, and go out
 * with the same bytes again.
 * @throws InvalidError for a record that was encrypted for another topic; what `seal` throws. Names the record by its index
 */
export function sealAgain(
  sealer: RecordSealer | undefined,
  topic: TopicName,
  records: readonly SendableRecord[],
): readonly SendableRecord[] {
  if (sealer === undefined) return records
  return records.map((record, i) =>
    indexed(i, () => (sealer.isSealed(topic, record) ? record : sealer.seal(topic, record))),
  )
}
