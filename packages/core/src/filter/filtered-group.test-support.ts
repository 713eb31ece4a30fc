/** A member of a group in virtual time, under a filter that another program changes. */
import assert from "node:assert/strict"
import { checkFilter, type Filter, filterText } from "@millrace/contract"
import type { Consumer } from "../consumer/consumer.ts"
import type { GroupConsumerOptions } from "../consumer/consumer-options.ts"
import { FakeClient, fakeManifest, take, textsOf } from "../consumer/fake-session.test-support.ts"
import { openGroupConsumer } from "../group/group-consumer.ts"
import { encodeFilterEvent, type FilterCommand } from "./filter-event.ts"
import { filterTopic } from "./filter-log.ts"
import { refreshMs } from "./filter-watch.ts"

const place = { ...filterTopic, partition: 0 }
const utf8 = new TextEncoder()

export class Bench {
  readonly client: FakeClient
  #operations = 0
  /** Requests that asked for the end of the topic of filters. */
  looks = 0

  constructor(partitions = 1, { holes = true }: { readonly holes?: boolean } = {}) {
    const manifest = { ...fakeManifest, read: { ...fakeManifest.read, holes } }
    this.client = new FakeClient({ partitions, manifest })
    const { log } = this.client
    const watermarks = log.watermarks.bind(log)
    log.watermarks = async (places) => {
      if (places.some(({ topic }) => topic === filterTopic.topic)) this.looks++
      return await watermarks(places)
    }
  }

  /** Appends `{"n": from}` … in one batch. */
  put(from: number, to: number, partition = 0): void {
    const records = []
    for (let n = from; n < to; n++) records.push({ payload: utf8.encode(JSON.stringify({ n })) })
    this.client.log.put(this.client.place(partition), records)
  }

  /** What another program does to the filter of the group. */
  mutate(command: FilterCommand, change: (event: string) => string = (event) => event): void {
    const { log, topic } = this.client
    if (log.find(place) === undefined) log.add(place)
    this.#operations++
    const event = encodeFilterEvent({ group: { ...topic, group: "g" }, operation: `${this.#operations}`, command })
    log.put(place, [{ payload: utf8.encode(change(new TextDecoder().decode(event))) }])
  }

  configure(where: Filter["where"], rest: Omit<Filter, "where"> = {}): void {
    this.mutate({ type: "configure", text: filterText(checkFilter({ where, ...rest })) })
  }

  /** Puts another filter in the place of the present one. */
  replace(expected: number, where: Filter["where"]): void {
    this.mutate({ type: "revise", expected, text: filterText(checkFilter({ where })) })
    this.mutate({ type: "enable", revision: expected + 1, enabled: true })
  }

  async open(options?: GroupConsumerOptions): Promise<Consumer> {
    const assigned = Array.from({ length: this.client.partitions }, (_, partition) => this.client.claim(partition))
    this.client.groups.membership.tell({ assigned })
    return openGroupConsumer(this.client.context, { topic: this.client.topic, group: "g" }, options)
  }

  async numbers(consumer: Consumer, count: number): Promise<number[]> {
    const messages = await this.soon(take(consumer, count))
    return textsOf(messages).map((text) => (JSON.parse(text) as { n: number }).n)
  }

  /** What comes within half a second. */
  async soon<V>(work: Promise<V>): Promise<V> {
    let settled = false
    const watched = work.finally(() => {
      settled = true
    })
    watched.catch(() => {})
    for (let step = 0; step < 50 && !settled; step++) await this.client.clock.advance(step === 0 ? 0 : 10)
    assert.ok(settled, "nothing came within half a second")
    return watched
  }

  /** Fails when something comes. */
  async nothingComes(consumer: Consumer): Promise<void> {
    const outcome = consumer.nextWithin(10).then(
      (message) => `offset ${message.position.offset} came`,
      (error) => (error as Error).name,
    )
    await this.client.clock.advance(10)
    assert.equal(await outcome, "TimeoutError")
  }

  /** Time for a change to be noticed. */
  async noticed(): Promise<void> {
    await this.client.clock.advance(refreshMs)
    await this.client.settle()
  }

  async failure(consumer: Consumer): Promise<unknown> {
    const outcome = consumer.next().then(
      () => assert.fail("a message came"),
      (error: unknown) => error,
    )
    return this.soon(outcome)
  }
}

export const atLeast = (value: number): Filter["where"] => ({ path: "n", op: "gte", value })
