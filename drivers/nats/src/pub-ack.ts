import { MillraceError, NotFoundError } from "@millrace/contract"
import { parseApiReply } from "./connection.ts"
import type { PartitionTarget } from "./partition-target.ts"
import { described, type TopicLayouts } from "./topic-layout.ts"

/** JetStream's answer to a publish. */
export interface PubAck {
  readonly stream: string
  /** Of the message, of the last message of an atomic batch, or of the earlier message that this one repeats. */
  readonly seq: number
  readonly duplicate?: boolean
  readonly batch?: string
  readonly count?: number
}

/** @throws MillraceError of what the answer refuses, or `protocol` for one that tells no sequence */
export function parsePubAck(data: Uint8Array, target: PartitionTarget): PubAck {
  const what = `publishing to topic ${described(target)}, partition ${target.partition}`
  const ack = parseApiReply<PubAck>(data, what)
  if (!Number.isSafeInteger(ack.seq) || ack.seq < 1) {
    throw new MillraceError("protocol", `${what}: NATS confirmed without a sequence`)
  }
  return ack
}

/**
 * Nobody listened to a partition's subject: its topic was deleted or recreated, or its stream has no leader at present.
 * Nothing was stored either way.
 */
export async function explainSilence(target: PartitionTarget, layouts: TopicLayouts): Promise<MillraceError> {
  const { stream, topic, partition, lineage } = target
  const context = { stream, topic, partition }
  try {
    const found = await layouts.partition({ stream, topic, partition })
    if (found.layout.lineage === lineage) {
      return new MillraceError(
        "not-leader",
        `the stream of topic ${described(target)}, partition ${partition} does not answer at present`,
        {
          context,
        },
      )
    }
    return new NotFoundError(`topic ${described(target)} was recreated: the batch was made for the one before`, {
      context,
    })
  } catch (error) {
    return error instanceof MillraceError ? error : new MillraceError("storage", String(error), { cause: error })
  }
}
