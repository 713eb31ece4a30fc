/** What may happen to a consumer of three partitions, and a model that holds what a commit policy commands against it. */
import assert from "node:assert/strict"
import fc from "fast-check"
import { CommitPolicyMachine, type StoreCommand } from "./commit-policy.machine.ts"
import type { CommitPolicy } from "./commit-policy.ts"

export const keys: readonly [0, 1, 2] = [0, 1, 2]
export const key: fc.Arbitrary<0 | 1 | 2> = fc.constantFrom(...keys)

/** What happens to a consumer of three partitions. */
type Step = { readonly do: "poll" | "tick" } | PartitionStep
type PartitionStep =
  | {
      readonly do: "deliver" | "handleAll" | "handleOne" | "release" | "drop" | "gain" | "move" | "fail"
      readonly key: number
    }
  | { readonly do: "commit" | "place"; readonly key: number; readonly back: number }

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant("deliver" as const), key }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom("handleAll" as const, "handleOne" as const), key }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("poll" as const, "tick" as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom("release" as const, "drop" as const, "gain" as const, "move" as const, "fail" as const),
      key,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom("commit" as const, "place" as const), key, back: fc.nat({ max: 3 }) }),
  },
)
export const steps: fc.Arbitrary<Step[]> = fc.array(step, { maxLength: 80 })

/** Delivers offsets one after the other, handles them, and holds what the machine commands against what is handled. */
export class CommitModel {
  readonly machine: CommitPolicyMachine<number>
  readonly delivered: bigint[] = [0n, 0n, 0n]
  readonly handled: bigint[] = [0n, 0n, 0n]
  readonly stored: bigint[] = [0n, 0n, 0n]
  /** What is to be stored: what is handled, unless the caller has stored something since. */
  readonly due: bigint[] = [0n, 0n, 0n]
  readonly owned: boolean[] = [true, true, true]
  /** Given to the store by the last command, which may yet fail. */
  readonly failable: Set<number> = new Set()
  commands = 0

  constructor(policy: CommitPolicy) {
    this.machine = new CommitPolicyMachine(policy)
    for (const one of keys) this.machine.handle({ type: "gained", key: one, stored: undefined })
  }

  run(one: Step): void {
    if (!("key" in one)) {
      if (one.do === "poll") this.poll()
      else this.take(this.machine.handle({ type: "tick" }))
    } else if (one.do === "gain") this.gain(one.key)
    else this.#ofPartition(one)
  }

  #ofPartition(one: PartitionStep): void {
    if (!this.owned[one.key]) {
      // Answers that come late say nothing any more.
      if (one.do === "handleAll")
        assert.deepEqual(this.machine.handle({ type: "handled", key: one.key, next: 99n, count: 1 }), [])
      if (one.do === "fail") assert.deepEqual(this.machine.handle({ type: "storeFailed", key: one.key }), [])
      return
    }
    switch (one.do) {
      case "deliver":
        this.delivered[one.key] = this.at(this.delivered, one.key) + 1n
        break
      case "handleAll":
        this.handle(one.key, this.at(this.delivered, one.key))
        break
      case "handleOne":
        if (this.at(this.handled, one.key) < this.at(this.delivered, one.key))
          this.handle(one.key, this.at(this.handled, one.key) + 1n)
        break
      case "release":
        this.take(this.machine.handle({ type: "released", key: one.key }))
        break
      case "drop":
        this.owned[one.key] = false
        this.take(this.machine.handle({ type: "dropped", key: one.key }))
        break
      case "move":
        this.take(this.machine.handle({ type: "moved", key: one.key }))
        break
      case "fail":
        this.fail(one.key)
        break
      case "commit":
        this.commit(one.key, BigInt(one.back))
        break
      case "place":
        this.place(one.key, BigInt(one.back))
        break
    }
  }

  at(values: readonly bigint[], index: number): bigint {
    return values[index] as bigint
  }

  handle(one: number, next: bigint): void {
    const before = this.at(this.handled, one)
    if (next <= before) return
    this.handled[one] = next
    this.due[one] = next
    this.take(this.machine.handle({ type: "handled", key: one, next, count: Number(next - before) }))
  }

  poll(): void {
    const handed = keys
      .filter((one) => this.owned[one] && this.at(this.handled, one) < this.at(this.delivered, one))
      .map((one) => ({ key: one, next: this.at(this.delivered, one) }))
    this.take(this.machine.handle({ type: "pollStarted", handed }))
  }

  /** The partition comes back: reading goes on behind what is stored. */
  gain(one: number): void {
    if (this.owned[one]) return
    this.owned[one] = true
    this.failable.delete(one)
    const stored = this.at(this.stored, one)
    this.delivered[one] = stored
    this.handled[one] = stored
    this.due[one] = stored
    this.machine.handle({ type: "gained", key: one, stored: stored === 0n ? undefined : stored })
  }

  /** The store that was commanded last has failed, and nothing of it was stored. */
  fail(one: number): void {
    if (!this.failable.delete(one)) return
    this.stored[one] = 0n
    this.take(this.machine.handle({ type: "storeFailed", key: one }))
  }

  commit(one: number, back: bigint): void {
    const next = this.at(this.delivered, one) - back
    if (next <= this.at(this.stored, one)) return
    this.stored[one] = next
    this.failable.delete(one)
    this.take(this.machine.handle({ type: "submitted", key: one, next }))
    if (next > this.at(this.handled, one)) this.handle(one, next)
  }

  /** The caller stores what it likes: what was handled before does not come to the store any more. */
  place(one: number, back: bigint): void {
    const next = this.at(this.delivered, one) - back
    if (next <= 0n) return
    this.stored[one] = next
    this.due[one] = next
    this.failable.delete(one)
    this.take(this.machine.handle({ type: "placed", key: one, next }))
  }

  take(commands: readonly StoreCommand<number>[]): void {
    const seen = new Set<number>()
    for (const { key: one, next } of commands) {
      assert.ok(this.owned[one], "of a partition that is another's")
      assert.ok(!seen.has(one), "twice in one breath")
      seen.add(one)
      assert.ok(next <= this.at(this.handled, one), `stored ${next}, handled ${this.handled[one]}`)
      assert.ok(next > this.at(this.stored, one), `stored ${next} after ${this.stored[one]}`)
      this.stored[one] = next
      this.failable.add(one)
      this.commands++
    }
  }

  behind(): boolean {
    return keys.some((one) => this.owned[one] && this.at(this.stored, one) < this.at(this.due, one))
  }
}
