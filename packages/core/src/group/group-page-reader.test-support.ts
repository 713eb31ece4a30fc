/** The reader of a group over the fake client. */
import assert from "node:assert/strict"
import { FakeClient, textOf } from "../consumer/fake-session.test-support.ts"
import type { Message } from "../record/message.ts"
import { openGroupReader } from "./group-page-reader.ts"
import type { GroupReader } from "./group-reader.ts"
import type { GroupReaderOptions } from "./group-reader-options.ts"
import type { MatchedPage } from "./page-ledger.ts"

export async function open(client: FakeClient, options?: GroupReaderOptions): Promise<GroupReader> {
  const assigned = Array.from({ length: client.partitions }, (_, partition) => client.claim(partition))
  client.groups.membership.tell({ assigned })
  return openGroupReader(client.context, { topic: client.topic, group: "g" }, options)
}

/** What comes within half a second of virtual time. */
export async function soon<V>(client: FakeClient, work: Promise<V>): Promise<V> {
  let settled = false
  const watched = work.finally(() => {
    settled = true
  })
  watched.catch(() => {})
  for (let step = 0; step < 50 && !settled; step++) await client.clock.advance(step === 0 ? 0 : 10)
  assert.ok(settled, "nothing came within half a second")
  return watched
}

export async function page(client: FakeClient, reader: GroupReader): Promise<MatchedPage> {
  return soon(client, reader.nextWithin(1000))
}

export function texts({ messages }: MatchedPage): string[] {
  return messages.map(textOf)
}

export function message(from: MatchedPage, index: number): Message {
  const found = from.messages[index]
  assert.ok(found !== undefined)
  return found
}

export function filled(records: number, partitions = 1): FakeClient {
  const client = new FakeClient({ partitions })
  for (let partition = 0; partition < partitions; partition++) client.put(0, records, partition)
  return client
}
