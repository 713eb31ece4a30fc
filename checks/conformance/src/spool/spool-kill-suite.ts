/** Processes that send through a spool and are killed with SIGKILL, one after the other, while the backend comes and goes. */
import assert from "node:assert/strict"
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { extname, join } from "node:path"
import type { Readable } from "node:stream"
import { type TestContext, test } from "node:test"
import { setTimeout as wait } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import type { Manifest } from "@millrace/contract"
import { seededRandom } from "@millrace/runtime"
import type { FaultProxy } from "@millrace/servers"
import { type Client, connect } from "millrace"
import { collectReports, reportDescriptor } from "../crash/report.ts"
import { checkSpooled, numberOf } from "./spool-record.ts"

/** A backend, and what stands before it. */
export interface SpoolTarget extends AsyncDisposable {
  readonly url: string
  /** Absent where nothing can be cut. */
  readonly proxies: readonly FaultProxy[]
}

export interface SpoolUnderTest {
  open(directory: string): Promise<SpoolTarget>
  readonly manifest: Manifest
}

const stream = "spooled"
const topic = "records"

/** A life goes on for so long at the most, in ms, before it is killed. */
const longestLifeMs = 700

/** Declares the test: short, or with `MILLRACE_LONG=1` whole. */
export function spoolKills(name: string, under: SpoolUnderTest): void {
  const lives = process.env.MILLRACE_LONG === "1" ? 60 : 4
  test(`${name}: what ${lives} killed processes accepted into a spool is delivered`, { timeout: lives * 60_000 }, (t) =>
    killAndDeliver(t, under, lives),
  )
}

async function killAndDeliver(t: TestContext, under: SpoolUnderTest, lives: number): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "millrace-spool-"))
  try {
    await using target = await under.open(directory)
    const spool = join(directory, "spool")
    const seed = Number(process.env.MILLRACE_SEED ?? Date.now() % 1_000_000)
    const random = seededRandom(seed)
    const accepted: [number, number][] = []
    let next = 0
    // One ahead: loading its code takes longer than its life.
    const spawn = (): WriterChild => new WriterChild([target.url, stream, topic, spool])
    await using children = new ChildQueue(spawn)
    for (let life = 0; life < lives; life++) {
      const child = children.take()
      await child.go(next)
      const calm = random.uint32() % 2 === 0 ? () => {} : disturb(target.proxies, random.uint32() % 3)
      await wait(random.uint32() % longestLifeMs)
      await child.kill()
      calm()
      assert.equal(child.complaints, "")
      accepted.push(...child.accepted)
      next = Math.max(next, child.mostSent)
    }
    const client = await connect(target.url, { stream })
    try {
      const producer = client.topic(topic).producer({ partitions: 3, background: { spool } })
      await producer.flush()
      const depth = producer.spool?.depth()
      assert.equal(depth?.records, 0)
      if (under.manifest.append.dedup !== "none") assert.equal(depth?.possiblyDoubled, 0)
      await producer.shutdown()
      const found = await readAll(client)
      const wrong = checkSpooled(accepted, found, { once: under.manifest.append.dedup !== "none" })
      assert.deepEqual(wrong.slice(0, 10), [], `seed ${seed}`)
      const records = accepted.reduce((sum, [from, to]) => sum + to - from, 0)
      assert.ok(records > 0, "nothing was accepted: the test proves nothing")
      t.diagnostic(`${records} accepted, ${found.flat().length} found, seed ${seed}`)
    } finally {
      await client.close()
    }
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/** The backend goes away: cut off, silent, or with its answers cut. The answer brings it back, for new connections. */
function disturb(proxies: readonly FaultProxy[], how: number): () => void {
  const faults = how === 2 ? proxies.map((proxy) => proxy.cutBeforeReply({ times: 3 })) : []
  for (const proxy of proxies) {
    if (how === 0) proxy.cut("reset")
    if (how === 1) proxy.stall("toClient")
  }
  return () => {
    for (const fault of faults) fault.cancel()
    for (const proxy of proxies) {
      proxy.cut("reset")
      proxy.flow()
    }
  }
}

async function readAll(client: Client): Promise<number[][]> {
  const found: number[][] = []
  const handle = client.topic(topic)
  for (const { partition, first, end } of await handle.watermarks()) {
    const numbers: number[] = []
    found.push(numbers)
    if (first === end) continue
    await using reader = handle.consumer(undefined, partition, { startAt: { kind: "first" } })
    for await (const { payload, position } of reader) {
      numbers.push(numberOf(payload))
      if (position.offset + 1n >= end) break
    }
  }
  return found
}

/** What a child may have sent beyond what it reported: the groups are never larger. */
const mostUnreported = 1_000

/** Children that are started one ahead of their use. */
class ChildQueue implements AsyncDisposable {
  readonly #spawn: () => WriterChild
  #next: WriterChild

  constructor(spawn: () => WriterChild) {
    this.#spawn = spawn
    this.#next = spawn()
  }

  take(): WriterChild {
    const child = this.#next
    this.#next = this.#spawn()
    return child
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#next.kill()
  }
}

class WriterChild {
  readonly accepted: [number, number][] = []
  readonly #ready: Promise<void>
  readonly #process: ChildProcess
  readonly #collected: Promise<void>
  readonly #exited: Promise<unknown>
  readonly #errors: string[] = []
  #first = 0

  constructor(args: readonly string[]) {
    const script = fileURLToPath(
      new URL(`./spool-writer.child${extname(fileURLToPath(import.meta.url))}`, import.meta.url),
    )
    this.#process = fork(script, args, { stdio: ["ignore", "ignore", "pipe", "ipc", "pipe"] })
    this.#exited = once(this.#process, "exit")
    this.#process.stderr?.on("data", (chunk) => this.#errors.push(String(chunk)))
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#ready = promise
    void this.#exited.then(() => reject(new Error(`the child ended before it was ready: ${this.complaints}`)))
    promise.catch(() => {})
    this.#collected = collectReports(this.#process.stdio[reportDescriptor] as Readable, ([word, from, to]) => {
      if (word === "ready") resolve()
      else this.accepted.push([Number(from), Number(to)])
    })
  }

  /** Lets it begin with this number; settles when its spool is open. */
  async go(first: number): Promise<void> {
    this.#first = first
    this.#process.send(first)
    await this.#ready
  }

  /** A number that no record of it has reached. */
  get mostSent(): number {
    return (this.accepted.at(-1)?.[1] ?? this.#first) + mostUnreported
  }

  get complaints(): string {
    return this.#errors
      .join("")
      .replace(/^.*(ExperimentalWarning|--trace-warnings).*$/gm, "")
      .trim()
  }

  async kill(): Promise<void> {
    this.#process.kill("SIGKILL")
    await this.#exited
    await this.#collected
  }
}
