/** Where reports of statistics are kept: one topic of the backend, made by the first reporter that has something to tell. */
import type { Manifest, Session, TopicName, TopicSpec } from "@millrace/contract"
import type { Clock, Random } from "@millrace/runtime"
import { OwnTopicWriter, ownTopic } from "../client/own-topic.ts"
import { topicSpec } from "../client/topic-options.ts"

/** One partition; the key of a record is the reporting process, so that its newest report stands for it. */
export const reportTopic: TopicName = ownTopic("producers")

/** Twice as long as the longest interval keeps a report alive is enough by far. */
const expireAfterMs = 600_000

const utf8 = new TextEncoder()

/** Writes reports of one process over one session. */
export class ReportWriter {
  readonly #key: Uint8Array
  readonly #writer: OwnTopicWriter

  /** @param reporter Names the process: a ULID. */
  constructor(session: Session, reporter: string, parts: { readonly clock: Clock; readonly random: Random }) {
    this.#key = utf8.encode(reporter)
    this.#writer = new OwnTopicWriter({ session, ...parts }, reportTopic, reportSpec(session.manifest))
  }

  /** Appends one report, to a topic that is made where it is missing. @throws what the backend says */
  async write(payload: Uint8Array): Promise<void> {
    await this.#writer.append(this.#key, payload)
  }
}

/** Kept as briefly and as cheaply as the backend can. */
function reportSpec(manifest: Manifest): TopicSpec {
  const { append, catalog } = manifest
  const options = {
    ...(catalog.expiry.supported ? { expireAfterMs } : {}),
    ...(append.durability.includes("written") ? { durability: "written" as const } : {}),
    deduplicationWindowMs: 0,
  }
  return topicSpec("the topic of producer statistics", { partitions: 1, options }, manifest)
}
