/** One simulated life of a client, from its first call to its end, all of it decided by one seed. */
import { openClient } from "@millrace/core"
import { FaultyBackend } from "./backend/faulty-backend.ts"
import { type BackendKind, backendKinds, manifestOf } from "./backend/manifests.ts"
import { Chance } from "./chance.ts"
import { invariants } from "./invariants/all.ts"
import { ContractWatch } from "./invariants/contract-watch.ts"
import { Occurrences } from "./invariants/occurrences.ts"
import { SimClock } from "./sim-clock.ts"
import { ProcessClock } from "./sim-process.ts"
import { SpoolSimulation } from "./spool-simulation.ts"
import { Trace } from "./trace.ts"
import { observed } from "./unobserved.ts"
import { WeatherPlan, weatherOf } from "./weather.ts"
import type { Actor } from "./workload/actor.ts"
import { actorsOf } from "./workload/actors.ts"
import { BackendEvents } from "./workload/backend-events.ts"
import { ProgramHistory } from "./workload/history.ts"
import { runScript } from "./workload/script.ts"
import { streamName, type Violation, World } from "./workload/world.ts"

export interface SimulationOptions {
  /** Whether the trace is written. Default false. */
  readonly trace?: boolean
}

/** How a simulation went. */
export interface SimulationResult {
  readonly seed: number
  readonly violations: readonly Violation[]
  readonly trace: readonly string[]
  readonly calls: number
  readonly records: number
}

/** Runs one seed. It never rejects; what breaks a promise is in `violations`. One at a time in a process. */
export async function simulate(seed: number, options: SimulationOptions = {}): Promise<SimulationResult> {
  const clock = new SimClock()
  const trace = new Trace(clock, options.trace ?? false)
  const thrown: Violation[] = []
  let result: SimulationResult | undefined
  await observed(
    (invariant, text) => thrown.push({ invariant, text }),
    async () => {
      result = await live(seed, { clock, trace })
    },
  )
  const { violations = [], calls = 0, records = 0 } = result ?? {}
  return { seed, violations: [...thrown, ...violations], trace: trace.lines, calls, records }
}

async function live(
  seed: number,
  { clock, trace }: { readonly clock: SimClock; readonly trace: Trace },
): Promise<SimulationResult> {
  const chance = new Chance(seed, 0)
  const kind: BackendKind = chance.of(backendKinds)
  const publishTimeoutMs = chance.of([100, 1000, 60_000])
  const weather = weatherOf(chance, kind, publishTimeoutMs)
  const plan = new WeatherPlan(new Chance(seed, 1), weather)
  const history = new ProgramHistory()
  const early: Violation[] = []
  const violate = (invariant: string, text: string): void => {
    early.push({ invariant, text })
    trace.note("world", `VIOLATION ${invariant}: ${text}`)
  }
  const largestRecordBytes = chance.of([4000, 9000])
  const manifest = manifestOf(kind, {
    identityScope: chance.of(["producer", "topic"]),
    duplicates: chance.of(["counted", "silent"]),
  })
  const watch = new ContractWatch(clock, { program: history, trace, attemptMs: publishTimeoutMs, manifest }, violate)
  const backend = new FaultyBackend({
    clock,
    manifest,
    faults: plan,
    watch,
    largestRecordBytes,
    ...(chance.happens(0.3) ? { largestBatch: chance.between(1, 12) } : {}),
    fencesEverywhere: chance.happens(0.5),
  })
  const processClock = new ProcessClock(clock)
  const session = backend.connect()
  const client = openClient(
    session,
    { publishTimeoutMs, publishRetries: chance.of([0, 3, 6]), publishRetryBackoffMs: chance.of([5, 250]) },
    { clock: processClock, random: new Chance(seed, 2).random },
  )
  const topics = chance.of([["a"], ["a"], ["a", "b"]])
  const world = new World({ clock, chance, trace, backend, history, client, topics, largestPayload: 9500 })
  trace.note("world", `seed ${seed}: ${manifest.backend}, weather ${JSON.stringify(weather)}`)
  const events = new BackendEvents(world)
  for (const topic of topics) if (chance.happens(0.8)) events.create(topic, chance.between(1, 3))
  if (!backend.streams.includes(streamName)) backend.createStream(streamName)

  const isSpooled = chance.happens(0.2)
  const actors = isSpooled ? [] : actorsOf(world, weather.straggling)
  if (!isSpooled) await runScript(world, { actors, events, weather })
  const isCalm = weather.trouble === 0 && weather.events === 0 && weather.slowMs * 12 < publishTimeoutMs
  plan.mayLast = !isSpooled
  const spool = {
    seed,
    watch,
    events,
    plan,
    eventRate: weather.events,
    publishTimeoutMs: Math.max(1000, publishTimeoutMs),
  }
  const ended = isSpooled
    ? await new SpoolSimulation(world, spool).run()
    : await endAll(world, actors, { plan, isCalm })
  if (!ended)
    violate(
      "everything ends",
      `the client has not closed: ${history.calls.filter(({ state }) => state === "open").length} calls are open`,
    )
  if (processClock.timers > 0 && !isSpooled) violate("nothing is left", `${processClock.timers} timers are left`)
  if (session.open > 0) violate("nothing is left", `${session.open} requests are left`)
  if (watch.kept > 0 && ended) violate("nothing is left", `${watch.kept} batches were not released`)
  processClock.kill()
  backend.restore()
  await clock.runUntil(() => clock.timers === 0, Number.POSITIVE_INFINITY)

  for (const actor of actors) actor.check?.()
  const evidence = {
    manifest,
    program: history,
    histories: backend.histories,
    occurrences: new Occurrences(backend.histories),
    isCalm,
    largestRecordBytes,
    budgets: world.budgets,
  }
  for (const invariant of invariants) {
    for (const text of invariant.check(evidence)) violate(invariant.name, text)
  }
  return {
    seed,
    violations: [...early, ...world.violations],
    trace: trace.lines,
    calls: history.calls.length,
    records: history.records.length,
  }
}

/** Shuts the producers down, or leaves that to the client; answers whether the client has closed. */
async function endAll(
  world: World,
  actors: readonly Actor[],
  { plan, isCalm }: { readonly plan: WeatherPlan; readonly isCalm: boolean },
): Promise<boolean> {
  const { chance, clock, trace } = world
  const timeoutMs = isCalm ? 600_000 : chance.of([0, 50, 5000, 600_000, 600_000])
  if (chance.happens(0.5)) plan.isOver = true
  let open = 0
  const follow = (what: string, promise: Promise<void>): void => {
    open++
    promise.then(
      () => {
        open--
        trace.note("client", `${what} ended`)
      },
      (error: unknown) => {
        open--
        trace.note("client", `${what} ended with ${String(error)}`)
      },
    )
  }
  trace.note("world", `the end, within ${timeoutMs} ms`)
  if (chance.happens(0.7)) {
    for (const actor of actors) follow(`${actor.lane.kind} ${actor.lane.id}`, actor.end(timeoutMs))
    if (chance.happens(0.7)) await clock.runUntil(() => open === 0, timeoutMs + longestMs)
  }
  for (const actor of actors) {
    if (actor.endsFirst) follow(`${actor.lane.kind} ${actor.lane.id}`, actor.end(timeoutMs))
  }
  follow("the client", world.client.close({ timeoutMs }))
  for (const actor of actors) follow(`${actor.lane.kind} ${actor.lane.id}`, actor.end(timeoutMs))
  return await clock.runUntil(
    () => open === 0 && world.history.calls.every(({ state }) => state !== "open"),
    timeoutMs + longestMs,
  )
}

/** Beyond all retries and time-outs of a simulation, in ms. */
const longestMs = 3_600_000
