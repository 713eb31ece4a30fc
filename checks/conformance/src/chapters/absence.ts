/** Chapter: what the manifest says is absent is refused, with the backend, the reason and what to use instead. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import type { Capability, QueueSpec, Session } from "@millrace/contract"
import { refused } from "../rig/refusal.ts"
import type { Rig } from "../rig/rig.ts"

interface Absence {
  readonly name: string
  readonly capability: Capability
  /** One call that needs the capability. */
  readonly call: (session: Session) => unknown
}

export function absenceChapter(rig: Rig): void {
  const { manifest } = rig
  const topic = { stream: "s", topic: "t" }
  const join = { sessionTimeoutMs: 1_000, rebalanceTimeoutMs: 1_000 }
  const queue: QueueSpec = { ackWaitMs: 1_000, backoffMs: [], ackPolicy: "explicit", startAt: { kind: "first" } }
  const absences: Absence[] = [
    { name: "groups", capability: manifest.groups, call: (session) => session.groups.join("g", [topic], join) },
    { name: "queues", capability: manifest.queues, call: (session) => session.queues.open(topic, "q", queue) },
    {
      name: "transactions",
      capability: manifest.transactions,
      call: (session) => session.transactions.init("tx", { timeoutMs: 1_000, keepPrepared: false }),
    },
    { name: "state", capability: manifest.state, call: (session) => session.state.get("k") },
    { name: "state put", capability: manifest.state, call: (session) => session.state.put("k", new Uint8Array(), {}) },
    { name: "state list", capability: manifest.state, call: (session) => session.state.list("") },
    {
      name: "state watch",
      capability: manifest.state,
      call: (session) => session.state.watch("")[Symbol.asyncIterator]().next(),
    },
    {
      name: "addPartitions",
      capability: manifest.catalog.addPartitions,
      call: (session) => session.catalog.addPartitions(topic, 1),
    },
    {
      name: "trim",
      capability: manifest.catalog.trim,
      call: (session) => session.catalog.trim({ ...topic, partition: 0 }, 1n),
    },
  ]

  describe("absence", () => {
    for (const { name, capability, call } of absences) {
      // What is there has a chapter of its own.
      if (capability.supported) continue
      test(`${name} is refused with the reason and what to use instead`, async () => {
        await refused(() => call(rig.session), {
          kind: "unsupported",
          says: [manifest.backend, capability.reason, capability.instead],
          retryable: false,
          outcome: "rejected",
        })
        assert.notEqual(capability.reason.trim(), "")
        assert.notEqual(capability.instead.trim(), "")
      })
    }

    test("the manifest is frozen data, and a session's is at most the driver's", () => {
      const { manifest: granted } = rig.session
      assert.ok(Object.isFrozen(granted))
      assert.deepEqual(structuredClone(granted), granted, "the manifest is data without functions")
      const most = rig.under.driver.manifest
      for (const part of ["groups", "queues", "transactions", "state"] as const) {
        if (granted[part].supported) assert.ok(most[part].supported, `${part} is granted though the driver lacks it`)
      }
      for (const [name, limit] of Object.entries(granted.limits)) {
        assert.ok(Number.isSafeInteger(limit) && limit > 0, `${name} is ${limit}`)
      }
      assert.ok(granted.append.durability.length > 0)
      const { inFlight, dedup } = granted.append
      assert.ok(inFlight.offsets >= 1 || inFlight.stored >= 1, "batches can be appended in one way at least")
      if (dedup === "none") assert.ok(Math.max(inFlight.offsets, inFlight.stored) === 1, "nothing refuses a gap")
    })
  })
}
