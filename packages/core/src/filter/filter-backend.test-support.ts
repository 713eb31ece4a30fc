/** A backend that holds nothing but the topic of filters, for several clients at once, with the faults that its mutations need. */
import {
  AlreadyExistsError,
  type AppendResult,
  type BatchWriter,
  type Catalog,
  ConnectionError,
  NotFoundError,
  type SealedBatch,
  type Session,
  type TopicDescription,
  type TopicName,
  type TopicSpec,
  type WireRecord,
} from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { FakeLog } from "../consumer/fake-log.test-support.ts"
import { fakeManifest } from "../consumer/fake-session.test-support.ts"
import type { FilterGroup } from "./filter-event.ts"
import { FilterLog, filterTopic } from "./filter-log.ts"

/** What becomes of an append: its answer is lost though it was stored, it is lost itself, or it is refused for now. */
export type AppendFault = "answer lost" | "lost" | "refused" | Error

const place = { ...filterTopic, partition: 0 }

/** The group that most tests are about. */
export const workers: FilterGroup = { stream: "s", topic: "t", group: "workers" }

class FilterFakeLog extends FakeLog {
  readonly faults: AppendFault[] = []
  /** Runs before an append is stored. */
  beforeAppend: () => Promise<void> = async () => {}
  appends = 0
  watermarkRequests = 0

  override async watermarks(
    places: Parameters<FakeLog["watermarks"]>[0],
  ): Promise<Awaited<ReturnType<FakeLog["watermarks"]>>> {
    this.watermarkRequests++
    return await super.watermarks(places)
  }

  override writer(): never {
    const records: WireRecord[] = []
    const writer: BatchWriter = {
      count: 0,
      bytes: 0,
      tryAppend: (record) => {
        records.push(record)
        return true
      },
      seal: () => ({ records: () => records, release: () => {} }) as unknown as SealedBatch,
    }
    return writer as never
  }

  override append(batch?: SealedBatch): never {
    return this.#append(batch as SealedBatch) as never
  }

  async #append(batch: SealedBatch): Promise<AppendResult> {
    await this.beforeAppend()
    this.appends++
    const fault = this.faults.shift()
    if (fault instanceof Error) throw fault
    if (fault === "refused") throw new ConnectionError("no connection", { outcome: "rejected" })
    if (fault === "lost") throw new ConnectionError("the connection was lost", { outcome: "unknown" })
    if (this.find(place) === undefined) throw new NotFoundError("the topic of filters does not exist")
    const timestampMicros = BigInt(this.appends)
    this.put(
      place,
      batch.records().map(({ payload, key }) => ({ payload, key, timestampMicros })),
    )
    if (fault === "answer lost") throw new ConnectionError("the connection was lost", { outcome: "unknown" })
    return { contiguous: true, duplicates: 0 }
  }
}

export class FilterBackend {
  readonly clock: VirtualClock = new VirtualClock()
  readonly log: FilterFakeLog = new FilterFakeLog(this.clock)
  readonly session: Session
  readonly #streams = new Set<string>()
  #clients = 0

  constructor() {
    const catalog: Partial<Catalog> = {
      createStream: async (stream: string) => {
        if (this.#streams.has(stream)) throw new AlreadyExistsError(`stream "${stream}" exists`)
        this.#streams.add(stream)
      },
      createTopic: async (name: TopicName, spec: TopicSpec) => this.#create(name, spec),
      describeTopic: async (name: TopicName) => this.#describe(name),
    }
    this.session = { manifest: fakeManifest, catalog, log: this.log } as unknown as Session
  }

  /** The filters as another client knows them. */
  client(): FilterLog {
    this.#clients++
    return new FilterLog({ session: this.session, clock: this.clock, random: seededRandom(this.#clients) })
  }

  /** Something that anybody could have written. */
  write(payload: string): void {
    if (this.log.find(place) === undefined) this.log.add(place)
    this.log.put(place, [{ payload: new TextEncoder().encode(payload), timestampMicros: 1n }])
  }

  /** Payloads of the topic, as texts. */
  written(): string[] {
    const batches = this.log.find(place)?.batches ?? []
    return batches.flatMap((batch) =>
      batch.records.map((record) => new TextDecoder().decode(record.payload ?? undefined)),
    )
  }

  deleteTopic(): void {
    this.log.partitions.clear()
    this.log.wake()
  }

  #create(name: TopicName, spec: TopicSpec): TopicDescription {
    if (this.log.find(place) !== undefined) throw new AlreadyExistsError(`topic "${name.topic}" exists`)
    this.log.add(place)
    return { ...spec, ...this.#describe(name) }
  }

  #describe(name: TopicName): TopicDescription {
    if (this.log.find({ ...name, partition: 0 }) === undefined)
      throw new NotFoundError(`topic "${name.topic}" does not exist`)
    return {
      ...name,
      partitions: [{ partition: 0 }],
      lineage: "a",
      durability: "synced",
      offsetDurability: "synced",
      deduplicationWindowMs: 0,
      deduplicateIds: false,
    }
  }
}
