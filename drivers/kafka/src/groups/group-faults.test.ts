/** Groups when members and brokers die. */
import assert from "node:assert/strict"
import { type ChildProcess, spawn } from "node:child_process"
import { execPath } from "node:process"
import { createInterface } from "node:readline"
import { describe, test } from "node:test"
import { fileURLToPath } from "node:url"
import type { TopicDescription } from "@millrace/contract"
import { serverNeed, sharedServer, startKafka } from "@millrace/servers"
import {
  append,
  checkHandled,
  GroupReader,
  type Handled,
  newTopic,
  openSession,
  ownName,
  until,
} from "./group-rig.test-support.ts"

const need = await serverNeed("kafka")
const skip = need === undefined ? false : `needs kafka: ${need}`
const needOwn = await serverNeed("kafka", { to: "start" })
const skipOwn = needOwn === undefined ? false : `needs kafka: ${needOwn}`

/** The session timeout of the brokers for tests, and time for the group to notice on a busy machine. */
const takeOverMs = 3000 + 9000

describe("groups under faults", { skip }, () => {
  test("the partitions of a member that is killed go to the others within the session timeout, from what it committed", async () => {
    const { url } = await sharedServer("kafka")
    const ours = await openSession(url)
    const log: Handled[] = []
    const group = ownName("group")
    const topic = await newTopic(ours.session, 4)
    const write = async (from: number): Promise<void> => {
      const texts = Array.from({ length: 25 }, (_, nth) => `${from + nth}`)
      await Promise.all([0, 1, 2, 3].map((partition) => append(ours.session, topic, { partition, texts })))
    }
    const doomed = new Child({ url, group, topic }, log)
    try {
      await until("the first member to have all", () => (doomed.held.length === 4 ? true : undefined))
      await write(0)
      await until("the first records", () => (log.length >= 100 ? true : undefined))
      const member = await GroupReader.join(ours, group, { topic, log })
      await until("a share", () => (member.held.size === 2 && doomed.held.length === 2 ? true : undefined))
      const began = performance.now()
      doomed.kill()
      await until("the partitions of the dead", () => (member.held.size === 4 ? true : undefined))
      const tookMs = performance.now() - began
      assert.ok(tookMs < takeOverMs, `it took ${tookMs} ms`)
      await write(25)
      await until("the second records", () => (log.length >= 200 ? true : undefined))
      await member.leave()
      checkHandled(log, { partitions: 4, records: 50 })
    } finally {
      doomed.kill()
      await ours.close()
    }
  })

  test("a broker that is killed and restarted costs no partition, and nothing is passed over", {
    skip: skipOwn,
  }, async () => {
    // Reconnecting may take as long as 6 s, which is to lie within the session timeout.
    const settings = { "group.consumer.session.timeout.ms": "20000" }
    await using server = await startKafka({ settings })
    const ours = await openSession(server.url)
    const log: Handled[] = []
    const group = ownName("group")
    const topic = await newTopic(ours.session, 2)
    const write = async (from: number): Promise<true> => {
      const texts = Array.from({ length: 10 }, (_, nth) => `${from + nth}`)
      await Promise.all([0, 1].map((partition) => append(ours.session, topic, { partition, texts })))
      return true
    }
    try {
      const member = await GroupReader.join(ours, group, { topic, log })
      await until("all partitions", () => (member.held.size === 2 ? true : undefined))
      await write(0)
      await until("the first records", () => (log.length >= 20 ? true : undefined))
      const claims = [...member.held.values()]
      await server.kill()
      await server.start()
      await until("an append to go through", () => write(10).catch(() => undefined), 60_000)
      await until("the second records", () => (log.length >= 40 ? true : undefined), 60_000)
      assert.deepEqual([...member.held.values()], claims, "its claims are still the same")
      await member.leave()
      const { end } = (await ours.session.log.watermarks([{ ...topic, partition: 0 }]))[0] as { readonly end: bigint }
      const found = await ours.session.offsets.load({ kind: "group", name: group }, [{ ...topic, partition: 0 }])
      assert.equal((found[0] as { readonly offset: bigint }).offset, end)
      checkHandled(log, { partitions: 2, records: Number(end) })
    } finally {
      await ours.close()
    }
  })
})

/** A member in a process of its own. */
class Child {
  held: readonly number[] = []
  readonly #child: ChildProcess

  constructor(
    { url, group, topic }: { readonly url: string; readonly group: string; readonly topic: TopicDescription },
    log: Handled[],
  ) {
    const file = fileURLToPath(new URL("group-member.child.ts", import.meta.url))
    const args = [file, url, group, topic.stream, topic.topic, "-"]
    this.#child = spawn(execPath, args, { stdio: ["ignore", "pipe", "inherit"] })
    createInterface({ input: this.#child.stdout as NodeJS.ReadableStream }).on("line", (line) => {
      const [word, ...rest] = line.split(" ")
      if (word === "held") this.held = rest.filter((text) => text !== "").map(Number)
      if (word === "record") log.push({ partition: Number(rest[0]), offset: BigInt(rest[1] as string), by: "child" })
    })
  }

  kill(): void {
    this.#child.kill("SIGKILL")
  }
}
