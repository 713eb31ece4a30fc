import type { TopicPartition } from "@millrace/contract"
import { CorruptionError, MillraceError } from "@millrace/contract"
import { KafkaEncodedBatch } from "./encoded-batch.ts"
import { at, headerBytes, uncountedBytes } from "./layout.ts"

/** Enough of a batch to tell its length and its format. */
const prefixBytes = at.magic + 1

/** When the batches of one call have more than this decompressed, those behind are left: a small answer can hold a lot. */
const enoughDecompressedBytes = 32 << 20

/**
 * The batches in the records of a fetch response, in order. A broker cuts the last one where the response is full: what is left of it
 * is dropped; the first is never cut (KIP-74), so that one is an error of kind `protocol`.
 *
 * The list may also end early, so that what it holds stays bounded: the caller goes on at the last one's `nextOffset` in any case.
 *
 * A batch that cannot be read (CorruptionError, UnsupportedError) does not hide those before it: it ends the list, as `error`. Its
 * context names the batch's first offset, and as `nextOffset` where reading can go on behind it, where that is known.
 */
export function readBatches(
  records: Uint8Array,
  place: TopicPartition,
): { readonly batches: KafkaEncodedBatch[]; readonly error: unknown } {
  const bytes = Buffer.from(records.buffer, records.byteOffset, records.length)
  const batches: KafkaEncodedBatch[] = []
  let position = 0
  let decompressedBytes = 0
  while (bytes.length - position >= prefixBytes && decompressedBytes <= enoughDecompressedBytes) {
    const length = bytes.readInt32BE(position + at.length)
    const end = position + uncountedBytes + length
    try {
      if (length < prefixBytes - uncountedBytes) throw badLength(length, bytes.readBigInt64BE(position), place)
      if (end > bytes.length) {
        if (position === 0) throw cutShort(place, { there: bytes.length, whole: end })
        break
      }
      const batch = new KafkaEncodedBatch(bytes.subarray(position, end), place)
      decompressedBytes += batch.decompressedBytes
      batches.push(batch)
    } catch (error) {
      return { batches, error: beforeNext(error, bytes.subarray(end)) }
    }
    position = end
  }
  return { batches, error: undefined }
}

/** A damaged batch whose own header cannot be trusted ends where the next one begins. */
function beforeNext(error: unknown, behind: Buffer): unknown {
  if (!(error instanceof CorruptionError) || error.context.nextOffset !== undefined) return error
  const { offset } = error.context
  if (behind.length < prefixBytes || offset === undefined) return error
  const nextOffset = behind.readBigInt64BE()
  if (nextOffset <= offset) return error
  return new CorruptionError(error.message, { context: { ...error.context, nextOffset }, cause: error.cause })
}

function badLength(length: number, offset: bigint, place: TopicPartition): CorruptionError {
  const { stream, topic, partition } = place
  return new CorruptionError(
    `the record batch at offset ${offset} of ${nameOf(place)} says that ${length} bytes follow: at least ${headerBytes - uncountedBytes} do`,
    { context: { stream, topic, partition, offset } },
  )
}

function cutShort(place: TopicPartition, bytes: { readonly there: number; readonly whole: number }): MillraceError {
  const { stream, topic, partition } = place
  return new MillraceError(
    "protocol",
    `the server sent ${bytes.there} of ${bytes.whole} bytes of the first record batch of ${nameOf(place)}`,
    { context: { stream, topic, partition } },
  )
}

function nameOf({ stream, topic, partition }: TopicPartition): string {
  return `partition ${partition} of topic ${JSON.stringify(stream === "" ? topic : `${stream}/${topic}`)}`
}
