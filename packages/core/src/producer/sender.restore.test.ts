/** Batches of an earlier process, as the sender's machine takes them up. */
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  ConnectionError,
  DiskFullError,
  FencedError,
  type Identity,
  type MillraceError,
  SequenceError,
} from "@millrace/contract"
import { SenderMachine } from "./sender.machine.ts"
import type { IdentityView, SenderCommand, SenderSettings } from "./sender-command.ts"
import type { SenderBatch } from "./sender-entry.ts"

interface Named extends SenderBatch {
  readonly name: string
}

const old: Identity = { producerId: 7n, epoch: 3 }
const fresh: Identity = { producerId: 9n, epoch: 0 }
const result = { base: 0n, contiguous: true, duplicates: 0 }

function machine(options: Partial<SenderSettings> = {}): SenderMachine<Named> {
  return new SenderMachine<Named>({
    maxInFlight: 5,
    sequenced: true,
    windowMs: 10_000,
    release: "idle",
    retries: Number.POSITIVE_INFINITY,
    retryBackoffMs: 100,
    resends: "direct",
    attemptTimeoutMs: 1_000,
    onUnknown: "resend",
    onExpired: "resend",
    ...options,
  })
}

const batch = (name: string, count = 2): Named => ({ name, count, full: true, due: true, gate: "open" })
const view = (current: Identity | undefined): IdentityView => ({ current, isRenewing: false })

function sent(commands: readonly SenderCommand<Named>[]): string[] {
  return commands.flatMap((command) =>
    command.kind === "append"
      ? [
          `${command.entry.batch.name} ${command.identity?.producerId}/${command.identity?.epoch}@${command.identity?.sequence}`,
        ]
      : [command.kind],
  )
}

function entryOf(commands: readonly SenderCommand<Named>[], name: string) {
  for (const command of commands)
    if (command.kind === "append" && command.entry.batch.name === name) return command.entry
  throw new Error(`${name} was not sent`)
}

test("they go out first, under the numbers they had; what follows waits for them and takes another identity", () => {
  const sender = machine()
  sender.restore(batch("a"), { identity: { ...old, sequence: 40 }, firstSentMs: -5_000 })
  sender.restore(batch("b"), { identity: { ...old, sequence: 42 }, firstSentMs: -4_000 })
  sender.enqueue(batch("c"))
  const first = sender.dispatch(0, view(undefined))
  assert.deepEqual(sent(first), ["a 7/3@40", "b 7/3@42"])
  for (const name of ["b", "a"]) sender.step({ kind: "appended", entry: entryOf(first, name), result, nowMs: 1 })
  assert.deepEqual(sent(sender.dispatch(1, view(undefined))), ["identify"])
  sender.step({ kind: "identified", identity: fresh, nowMs: 2 })
  assert.deepEqual(sent(sender.dispatch(2, view(fresh))), ["c 9/0@0"])
})

test("an identity that others use by now is not taken before they have settled", () => {
  const sender = machine()
  sender.restore(batch("a"), { identity: { ...old, sequence: 0 }, firstSentMs: 0 })
  sender.enqueue(batch("b"))
  const first = sender.dispatch(0, view(fresh))
  assert.deepEqual(sent(first), ["a 7/3@0"])
  sender.step({ kind: "appended", entry: entryOf(first, "a"), result, nowMs: 1 })
  assert.deepEqual(sent(sender.dispatch(1, view(fresh))), ["b 9/0@0"])
})

test("after a failure that may pass they go out again under the same numbers", () => {
  const sender = machine()
  sender.restore(batch("a"), { identity: { ...old, sequence: 5 }, firstSentMs: 0 })
  const first = sender.dispatch(0, view(undefined))
  const error = new ConnectionError("gone", { outcome: "unknown" })
  const entry = entryOf(first, "a")
  sender.step({ kind: "failed", entry, attempt: entry.attempt, error, nowMs: 1 })
  sender.step({ kind: "timer", nowMs: 1_000 })
  assert.deepEqual(sent(sender.dispatch(1_000, view(undefined))), ["a 7/3@5"])
  assert.equal(entry.doubtful, false)
})

for (const [what, error] of [
  ["a backend that has forgotten them", new SequenceError("expected 0")],
  ["a backend that has seen a later epoch", new FencedError("epoch 4 is the present one")],
] as const satisfies readonly (readonly [string, MillraceError])[]) {
  test(`${what} gets them under a new identity, in doubt, or they fail as unknown`, () => {
    for (const onExpired of ["resend", "fail"] as const) {
      const sender = machine({ onExpired })
      sender.restore(batch("a"), { identity: { ...old, sequence: 5 }, firstSentMs: 0 })
      sender.enqueue(batch("b"))
      const entry = entryOf(sender.dispatch(0, view(undefined)), "a")
      const commands = sender.step({ kind: "failed", entry, attempt: entry.attempt, error, nowMs: 1 })
      const [failure] = commands
      if (onExpired === "fail") {
        assert.equal(failure?.kind === "fail" ? failure.error.outcome : failure?.kind, "unknown")
        continue
      }
      assert.deepEqual(commands, [])
      assert.equal(entry.doubtful, true)
      assert.deepEqual(sent(sender.dispatch(1, view(undefined))), ["identify"])
      sender.step({ kind: "identified", identity: fresh, nowMs: 2 })
      assert.deepEqual(sent(sender.dispatch(2, view(fresh))), ["a 9/0@0", "b 9/0@2"])
    }
  })
}

test("one that goes out in doubt and then fails for good is told as unknown, whatever it fails with", () => {
  const sender = machine()
  sender.restore(batch("a"), { identity: { ...old, sequence: 5 }, firstSentMs: 0 })
  const entry = entryOf(sender.dispatch(0, view(undefined)), "a")
  sender.step({ kind: "failed", entry, attempt: entry.attempt, error: new SequenceError("expected 0"), nowMs: 1 })
  assert.deepEqual(sent(sender.dispatch(1, view(undefined))), ["identify"])
  const [failure] = sender.step({ kind: "unidentified", error: new DiskFullError("no room"), nowMs: 2 })
  assert.equal(failure?.kind === "fail" ? failure.error.outcome : failure?.kind, "unknown")
})

test("beyond its window a batch goes out in doubt", () => {
  const sender = machine({ sequenced: false, maxInFlight: 1 })
  sender.restore(batch("a"), { identity: undefined, firstSentMs: -9_990 })
  const entry = entryOf(sender.dispatch(0, undefined), "a")
  sender.step({ kind: "failed", entry, attempt: entry.attempt, error: new ConnectionError("gone"), nowMs: 1 })
  assert.equal(entry.doubtful, true)
  sender.step({ kind: "timer", nowMs: 1_000 })
  assert.deepEqual(sent(sender.dispatch(1_000, undefined)), ["a undefined/undefined@undefined"])
})
