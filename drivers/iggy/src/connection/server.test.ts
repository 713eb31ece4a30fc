/** Against a real server: what recorded exchanges cannot show. */
import assert from "node:assert/strict"
import { after, before, describe, it, type TestContext } from "node:test"
import { Headers, type MillraceError } from "@millrace/contract"
import { SlabPool, seededRandom, systemClock, systemRandom } from "@millrace/runtime"
import { type Server, serverNeed, startIggy } from "@millrace/servers"
import { IggyBatchWriter } from "../batch/batch-writer.ts"
import { readBatches } from "../batch/encoded-batch.ts"
import * as catalog from "../codec/catalog-commands.ts"
import * as groups from "../codec/group-commands.ts"
import { pollMessages } from "../codec/message-commands.ts"
import * as serverCommands from "../codec/server-commands.ts"
import { errorCodeOf } from "../codec/server-error.ts"
import * as users from "../codec/user-commands.ts"
import { type ConnectionOptions, IggyConnection } from "./connection.ts"
import type { SessionChange } from "./lifeline.ts"

const need = await serverNeed("iggy", { to: "start" })
const soon = { timeoutMs: 20_000 }

describe("a real server", { timeout: 120_000 }, () => {
  let server: Server
  before(async () => {
    if (need === undefined) server = await startIggy({ proxied: true, env: { IGGY_HEARTBEAT_INTERVAL: "2s" } })
  })
  after(() => server?.stop())

  function open(tweaks: Partial<ConnectionOptions> = {}): Promise<IggyConnection> {
    const { port, hostname } = new URL(server.url)
    return IggyConnection.open(
      {
        addresses: [{ host: hostname, port: Number(port) }],
        credentials: { username: "iggy", password: "iggy" },
        clock: systemClock,
        random: systemRandom,
        dialTimeoutMs: 10_000,
        heartbeatMs: 1000,
        ...tweaks,
      },
      soon,
    )
  }

  function absent(t: TestContext): boolean {
    if (need !== undefined) t.skip(`needs iggy: ${need}`)
    return need !== undefined
  }

  it("takes and tells users, tokens, options, itself", async (t) => {
    if (absent(t)) return
    await using connection = await open()
    const off = {
      ...{ manageServers: false, readServers: false, manageUsers: false, readUsers: false, manageStreams: false },
      ...{ readStreams: true, manageTopics: false, readTopics: true, pollMessages: true, sendMessages: false },
    }
    const permissions = { global: off, streams: [] }
    const account = { username: "reader", password: "secret", status: "active", permissions, options: [] } as const
    const made = await connection.request(users.createUser, account, soon)
    assert.deepEqual(made.permissions, permissions)
    assert.deepEqual((await connection.request(users.getUser, { user: "reader" }, soon))?.permissions, permissions)
    assert.equal((await connection.request(users.getUsers, undefined, soon)).length, 2)
    const { token } = await connection.request(users.createAccessToken, { name: "token", expiryMicros: 0n }, soon)
    {
      await using byToken = await open({ credentials: { token } })
      assert.equal((await byToken.request(serverCommands.getMe, undefined, soon)).userId, 0)
    }
    {
      await using reader = await open({ credentials: { username: "reader", password: "secret" } })
      const refused = await reader
        .request(catalog.createStream, { name: "no", options: [] }, soon)
        .catch((error: MillraceError) => error)
      assert.ok(refused instanceof Error && refused.kind === "permission", String(refused))
      assert.ok(reader.ready)
    }
    await connection.request(users.changePassword, { user: "reader", current: "secret", next: "secrets" }, soon)
    await connection.request(
      users.updateUser,
      { user: "reader", username: "lector", status: "inactive", options: [] },
      soon,
    )
    const inactive = await open({ credentials: { username: "lector", password: "secrets" } }).catch(
      (error: MillraceError) => error,
    )
    assert.ok(inactive instanceof Error && "kind" in inactive && inactive.kind === "authentication")
    await connection.request(users.updatePermissions, { user: "lector", permissions: undefined }, soon)
    await connection.request(users.deleteUser, { user: "lector" }, soon)
    await connection.request(users.deleteAccessToken, { name: "token" }, soon)
    assert.ok((await connection.request(serverCommands.describeOptions, { scope: 1 }, soon)).length >= 8)
    assert.ok((await connection.request(serverCommands.getStats, undefined, soon)).processId > 0)
    assert.ok((await connection.request(serverCommands.getClients, undefined, soon)).length >= 1)
    assert.match(connection.serverVersion, /^\d+\.\d+\.\d+/)
  })

  it("takes batches of ours and gives them back", async (t) => {
    if (absent(t)) return
    await using connection = await open()
    const [name, place] = ["Zeichen ü/1", { stream: "Zeichen ü/1", topic: "t" }]
    await connection.request(catalog.createStream, { name, options: [] }, soon)
    await connection.request(catalog.createTopic, { stream: name, name: "t", partitionsCount: 2, options: [] }, soon)
    const pool = new SlabPool()
    const writer = new IggyBatchWriter({ topic: place, lineage: "", partition: 1 }, pool, {
      records: 5000,
      bytes: 8 << 20,
    })
    const random = seededRandom(7)
    const payloads: (Uint8Array | null)[] = []
    for (let i = 0; i < 5000; i++) {
      const payload = i % 50 === 0 ? null : new Uint8Array(random.uint32() % 400).fill(i & 0xff)
      payloads.push(payload)
      const headers =
        i % 3 === 0
          ? Headers.from([
              ["n", String(i)],
              ["n", ""],
            ])
          : Headers.empty
      const key = i % 2 === 0 ? Buffer.from(`key ${i}`) : null
      assert.ok(writer.tryAppend({ payload, key, headers, id: undefined, timestampMicros: undefined }))
    }
    const batch = writer.seal({ id: 1n << 20n, timestampMicros: 123n, resend: false })
    const [confirmed] = await connection.send(batch, soon)
    assert.deepEqual([confirmed?.partitionId, confirmed?.baseOffset], [1, 0n])
    // No recorded topic has messages, so that only this tells its counters apart.
    const filled = await connection.request(catalog.getTopic, place, soon)
    assert.equal(filled?.messagesCount, 5000n)
    assert.ok((filled?.sizeBytes ?? 0n) > 500_000n, `${filled?.sizeBytes}`)
    const [, part] = filled?.partitions ?? []
    assert.deepEqual([part?.currentOffset, part?.messagesCount, part?.sizeBytes], [4999n, 5000n, filled?.sizeBytes])
    const [stream] = await connection.request(catalog.getStreams, undefined, soon)
    assert.deepEqual([stream?.topicsCount, stream?.messagesCount, stream?.sizeBytes], [1, 5000n, filled?.sizeBytes])
    const again = connection.send(batch, soon)
    batch.release()
    assert.equal((await again)[0]?.baseOffset, 5000n)
    const poll = {
      consumer: { kind: "consumer", id: "c" },
      ...place,
      partition: 1,
      count: 3000,
      autoCommit: false,
    } as const
    let next = 0n
    while (next < 10_000n) {
      const { records } = await connection.request(
        pollMessages,
        { ...poll, strategy: { kind: "offset", value: next } },
        soon,
      )
      for (const read of readBatches(records)) {
        for (let i = 0; i < read.count; i++) {
          const at = Number(read.offset(i) % 5000n)
          assert.equal(read.offset(i), next++)
          assert.deepEqual(read.payload(i), payloads[at])
          if (read.offset(i) < 5000n) assert.equal(read.timestampMicros(i), confirmed?.committedMicros)
          assert.equal(read.id(i), (1n << 20n) + BigInt(at))
          assert.equal(read.headers(i).size, at % 3 === 0 ? 2 : 0)
        }
      }
    }
    await connection.request(catalog.deleteStream, { stream: name }, soon)
  })

  it("evicts a silent member, who logs in again by himself", async (t) => {
    if (absent(t)) return
    const changes: SessionChange[] = []
    const lost = Promise.withResolvers<void>()
    const back = Promise.withResolvers<void>()
    await using admin = await open()
    await using member = await open({
      heartbeatMs: 60_000,
      onSession: (change) => {
        changes.push(change)
        if (change.state === "lost") lost.resolve()
        else if (change.session === 2) back.resolve()
      },
    })
    const place = { stream: "evicted", topic: "t" }
    await admin.request(catalog.createStream, { name: place.stream, options: [] }, soon)
    await admin.request(catalog.createTopic, { stream: place.stream, name: "t", partitionsCount: 1, options: [] }, soon)
    await admin.request(groups.createConsumerGroup, { ...place, name: "g" }, soon)
    const group = { ...place, group: "g" }
    await member.request(groups.joinConsumerGroup, group, soon)
    assert.deepEqual((await member.request(groups.syncConsumerGroup, group, soon))?.partitions, [0])
    await lost.promise
    await back.promise
    assert.equal(await member.request(groups.syncConsumerGroup, group, soon), undefined)
    assert.deepEqual(
      changes.map((change) => change.state),
      ["ready", "lost", "ready"],
    )
    await admin.request(catalog.deleteStream, { stream: place.stream }, soon)
  })

  it("whose answer is lost leaves the outcome unknown, and what was done is done", async (t) => {
    if (absent(t)) return
    await using connection = await open()
    const [proxy] = server.proxies
    assert.ok(proxy)
    const fault = proxy.cutBeforeReply({ request: (bytes) => Buffer.from(bytes).includes("lost answer") })
    const error = await connection
      .request(catalog.createStream, { name: "lost answer", options: [] }, soon)
      .catch((reason: MillraceError) => reason)
    await fault.happened
    assert.ok(error instanceof Error && "outcome" in error)
    assert.deepEqual([error.kind, error.outcome], ["connection", "unknown"])
    while (!connection.ready) await new Promise((resolve) => setImmediate(resolve))
    const again = await connection
      .request(catalog.createStream, { name: "lost answer", options: [] }, soon)
      .catch((reason: unknown) => reason)
    assert.equal(errorCodeOf(again), 1012)
    await connection.request(catalog.deleteStream, { stream: "lost answer" }, soon)
  })

  it("that is killed and started again is found again", async (t) => {
    if (absent(t)) return
    const returned = Promise.withResolvers<void>()
    await using connection = await open({
      onConnection: (change) => {
        if (change.state === "restored") returned.resolve()
      },
    })
    await server.kill()
    while (connection.ready) await new Promise((resolve) => setImmediate(resolve))
    const none = await connection.request(serverCommands.ping, undefined, soon).catch((reason: MillraceError) => reason)
    assert.ok(none instanceof Error && none.kind === "connection" && none.retryable && none.outcome === "rejected")
    await server.start()
    await returned.promise
    await connection.request(serverCommands.getStats, undefined, soon)
  })
})
