import type { CommitPolicy, ConsumerOptions, StartAt } from "@millrace/core"
import type { Chance } from "../chance.ts"
import type { Owner, Semantics } from "./owner.ts"

/** One or two owners over these topics, with options of every kind. @param startMicros When the simulation begins. */
export function ownersOf(chance: Chance, topics: readonly string[], startMicros: bigint): Owner[] {
  const count = chance.weighted([
    [5, 1],
    [1, 2],
  ])
  return Array.from({ length: count }, (_, id) => ownerOf(chance, { id, topics, startMicros }))
}

function ownerOf(
  chance: Chance,
  {
    id,
    topics,
    startMicros,
  }: { readonly id: number; readonly topics: readonly string[]; readonly startMicros: bigint },
): Owner {
  const kind = chance.weighted<Owner["of"]["kind"]>([
    [3, "group"],
    [2, "consumer"],
  ])
  const semantics = chance.weighted<Semantics>([
    [6, "asking"],
    [2, "marks"],
    [1, "delivery"],
    [1, "onRead"],
  ])
  const commitPolicy = policyOf(chance, semantics)
  const read = kind === "group" && chance.happens(0.5) ? topics : [chance.of(topics)]
  return {
    id,
    of: { kind, name: `${kind}-${id}` },
    topics: read,
    partition: kind === "group" ? undefined : 0,
    semantics,
    stores: commitPolicy.kind !== "disabled" && commitPolicy.kind !== "onRead",
    options: {
      ...optionsOf(chance, commitPolicy, startMicros),
      // Who goes on behind a position out of range by `seek` names a partition by its number.
      onOutOfRange: chance.of(["first", "first", "next", read.length === 1 ? "fail" : "first"] as const),
      // Under `onRead` it may give everything twice.
      allowReplay: semantics !== "onRead" && chance.happens(0.1),
    },
    sessionTimeoutMs: chance.of([3000, 10_000]),
    rebalanceTimeoutMs: chance.of([500, 5000, 30_000]),
    handlerTimeoutMs: chance.weighted([
      [4, undefined],
      [1, chance.between(500, 2500)],
    ]),
  }
}

function policyOf(chance: Chance, semantics: Semantics): CommitPolicy {
  const intervalMs = chance.of([5, 200, 5000])
  const count = chance.of([1, 3, 20])
  const every = chance.of([1, 7, "message", "batch"] as const)
  if (semantics === "onRead") return { kind: "onRead" }
  if (semantics === "delivery") return { kind: "auto", after: "delivery", every, intervalMs }
  if (semantics === "marks") {
    return chance.happens(0.5) ? { kind: "disabled" } : { kind: "auto", after: "marked", every, intervalMs }
  }
  return chance.of<CommitPolicy>([
    { kind: "polling" },
    { kind: "polling" },
    { kind: "all" },
    { kind: "each" },
    { kind: "every", count },
    { kind: "interval", intervalMs },
    { kind: "intervalOrPolling", intervalMs },
    { kind: "intervalOrAll", intervalMs },
    { kind: "intervalOrEach", intervalMs },
    { kind: "intervalOrEvery", intervalMs, count },
    { kind: "auto", every, intervalMs: chance.of([false, intervalMs] as const) },
  ])
}

function optionsOf(chance: Chance, commitPolicy: CommitPolicy, startMicros: bigint): ConsumerOptions {
  const startAt = chance.weighted<StartAt>([
    [5, { kind: "next" }],
    [2, { kind: "first" }],
    [1, { kind: "last" }],
    [1, { kind: "offset", value: BigInt(chance.below(20)) }],
    [1, { kind: "timestampMicros", value: startMicros + BigInt(chance.below(5_000_000)) }],
  ])
  return {
    commitPolicy,
    startAt,
    pollIntervalMs: chance.of([0, 0, 50]),
    pollingRetryIntervalMs: chance.of([10, 200, 1000]),
    maxWaitMs: chance.of([100, 1000, 5000]),
    minRecords: chance.of([1, 1, 3]),
    prefetchRecords: chance.of([5, 20, 1000]),
    onMissing: "wait",
    ...(chance.happens(0.3) ? { initRetries: { retries: 2, intervalMs: 50 } } : {}),
  }
}
