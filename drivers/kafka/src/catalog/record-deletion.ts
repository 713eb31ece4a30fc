/** Moves the first offset of partitions up (DeleteRecords, KIP-107). */
import type { MillraceError } from "@millrace/contract"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic, meansOtherLeader } from "../errors.ts"
import { topicNameOf } from "../names.ts"
import type { Pauses } from "../pauses.ts"
import { deleteRecordsApi } from "../protocol/api.ts"
import { noTopic, topicText } from "../topic-words.ts"

/** Everything that all replicas in sync have. */
export const wholePartition: bigint = -1n

/** How often one call finds the leader again, and the pause in between, ms. */
const mostTries = 5
const pauseMs = 100

/**
 * Removes what lies before the offset. After a cut connection the outcome is unknown; asking again changes nothing more.
 * @throws NotFoundError; OffsetOutOfRangeError for an offset behind the end; PermissionError for compacted topics
 */
export async function deleteRecords(
  parts: { readonly cluster: Cluster; readonly pauses: Pauses },
  kafka: string,
  before: { readonly partition: number; readonly offset: bigint },
): Promise<void> {
  const { cluster, pauses } = parts
  const { partition, offset } = before
  const topics = [{ name: kafka, partitions: [{ partitionIndex: partition, offset }] }]
  const to = { kind: "leader", topic: kafka, partition } as const
  for (let attempt = 1; ; attempt++) {
    const body = { topics, timeoutMs: cluster.requestTimeoutMs }
    const answer = await cluster.request(deleteRecordsApi, body, to)
    const code = answer.topics[0]?.partitions[0]?.errorCode ?? errorCode.none
    if (code === errorCode.none) return
    const moved = meansOtherLeader(code) || meansNoTopic(code)
    if (!moved || attempt >= mostTries) throw failure(code, kafka, partition)
    cluster.invalidate(kafka)
    await pauses.wait(pauseMs)
  }
}

function failure(code: number, kafka: string, partition: number): MillraceError {
  if (meansNoTopic(code)) return noTopic(kafka)
  const what = `removing records of partition ${partition} of ${topicText(kafka)}`
  return kafkaError(code, { what, context: { ...topicNameOf(kafka), partition } })
}
