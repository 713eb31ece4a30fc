import type { Lineage, TopicDescription, TopicName } from "@millrace/contract"
import { ownLineage, subjectOf } from "./names.ts"

/** The partition that a batch is made for. */
export interface PartitionTarget extends TopicName {
  readonly partition: number
  readonly lineage: Lineage
  /** Where the records are published to; `undefined` for a stream that Millrace did not make, whose configuration tells it. */
  readonly subject: string | undefined
}

/** The target of a topic as it was described. Its subject carries the lineage: what is meant for a deleted topic finds nobody. */
export function targetOf({ stream, topic, lineage }: TopicDescription, partition: number): PartitionTarget {
  const subject = ownLineage.test(lineage) ? subjectOf({ stream, topic, partition, lineage }) : undefined
  return { stream, topic, partition, lineage, subject }
}
