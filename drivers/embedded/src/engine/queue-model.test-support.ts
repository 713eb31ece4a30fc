/** For tests: what a work queue must do, kept as plainly as possible. */
import assert from "node:assert/strict"
import type { QueueDescription, QueueSpec } from "@millrace/contract"
import type { Pulled } from "./queue-fixture.test-support.ts"

interface Message {
  readonly offset: bigint
  deliveries: number
  /** The lease that has it; 0: given back. */
  lease: number
  waitMs: number
  /** By engine, the time on its clock from which it may count at the earliest. */
  since: number[]
}

interface Partition {
  /** The first retained offset and the end. */
  first: bigint
  end: bigint
  next: bigint
  /** Handed out and not settled. */
  readonly open: Map<bigint, Message>
}

/** A queue over some partitions, seen by several engines with a clock each. */
export class QueueModel {
  readonly partitions: Partition[]
  readonly #spec: QueueSpec
  readonly #settled = new Set<string>()

  constructor(spec: QueueSpec, partitions: number) {
    this.#spec = spec
    this.partitions = Array.from({ length: partitions }, () => ({ first: 0n, end: 0n, next: 0n, open: new Map() }))
  }

  get pending(): number {
    return this.partitions.reduce((sum, { open }) => sum + open.size, 0)
  }

  /** Every record that is there was handed out and settled. */
  get isDone(): boolean {
    return this.pending === 0 && this.partitions.every(({ next, end }) => next >= end)
  }

  appended(partition: number, count: number): void {
    this.#at(partition).end += BigInt(count)
  }

  trimmed(partition: number, first: bigint): void {
    const place = this.#at(partition)
    place.first = first
    if (place.next < first) place.next = first
    for (const offset of place.open.keys()) if (offset < first) place.open.delete(offset)
  }

  /** An engine that is opened again knows nothing of what it saw. */
  reopened(engine: number, clocks: readonly number[]): void {
    for (const { open } of this.partitions)
      for (const message of open.values()) message.since[engine] = clocks[engine] as number
  }

  /** Checks what an engine has pulled, and takes note of it. */
  pulled(
    messages: readonly Pulled[],
    by: { readonly engine: number; readonly clocks: readonly number[]; readonly most: number },
  ): void {
    assert.ok(messages.length <= by.most, "more messages than asked for")
    const bound = this.#spec.maxAckPending ?? Number.POSITIVE_INFINITY
    let isNew = false
    for (const { partition, offset, deliveries, lease } of messages) {
      const place = this.#at(partition)
      assert.ok(!this.#settled.has(`${partition}/${offset}`), `offset ${offset} was settled before`)
      assert.ok(offset >= place.first && offset < place.end, `offset ${offset} is not there`)
      const known = place.open.get(offset)
      if (known === undefined) {
        isNew = true
        assert.equal(offset, place.next, "new records come in order")
        assert.ok(this.pending < bound, "more is pending than the bound allows")
        place.next += 1n
      } else {
        assert.ok(!isNew, "what comes again comes before what is new")
        const waited = (by.clocks[by.engine] as number) - (known.since[by.engine] as number)
        assert.ok(waited >= known.waitMs, `offset ${offset} came again after ${waited} ms of ${known.waitMs}`)
        assert.notEqual(known.lease, lease, "a message is in an answer twice")
      }
      assert.equal(deliveries, (known?.deliveries ?? 0) + 1)
      place.open.set(offset, { offset, deliveries, lease, waitMs: this.#waitOf(deliveries), since: [...by.clocks] })
    }
  }

  /** What settling a message must answer, done here too; either, when its record is gone. */
  settle(
    message: Pulled,
    verdict: "ack" | "nak" | "inProgress" | "terminate",
    how: { readonly delayMs: number; readonly clocks: readonly number[] },
  ): boolean | "either" {
    const { partition, offset, lease } = message
    const { open, first } = this.#at(partition)
    if (offset < first) return "either"
    const known = open.get(offset)
    if (known === undefined || known.lease !== lease) return false
    if (verdict === "nak") open.set(offset, { ...known, lease: 0, waitMs: how.delayMs, since: [...how.clocks] })
    else if (verdict === "inProgress")
      open.set(offset, { ...known, waitMs: this.#waitOf(known.deliveries), since: [...how.clocks] })
    else {
      for (const other of [...open.keys()])
        if (other === offset || (verdict === "ack" && this.#spec.ackPolicy === "all" && other < offset)) {
          open.delete(other)
          this.#settled.add(`${partition}/${other}`)
        }
    }
    return true
  }

  /** Compares with what the engine says of itself. */
  check({ ackPending, undelivered, partitions }: QueueDescription): void {
    assert.equal(ackPending, this.pending)
    assert.equal(
      undelivered,
      this.partitions.reduce((sum, { next, end }) => sum + (end > next ? end - next : 0n), 0n),
    )
    assert.deepEqual(
      partitions,
      this.partitions.map(({ next, open }, partition) => ({
        partition,
        next,
        floor: [next, ...open.keys()].sort((a, b) => Number(a - b))[0],
      })),
    )
  }

  #waitOf(deliveries: number): number {
    const { backoffMs, ackWaitMs } = this.#spec
    return backoffMs[Math.min(deliveries, backoffMs.length) - 1] ?? ackWaitMs
  }

  #at(partition: number): Partition {
    return this.partitions[partition] as Partition
  }
}
