import assert from "node:assert/strict"
import { once } from "node:events"
import { createServer } from "node:net"
import { describe, it } from "node:test"
import { AuthenticationError, MillraceError } from "@millrace/contract"
import { VirtualClock } from "@millrace/runtime"
import { createStream, getStreams } from "../codec/catalog-commands.ts"
import { exchange } from "../codec/exchanges.test-support.ts"
import { storeConsumerOffset } from "../codec/group-commands.ts"
import { ping } from "../codec/server-commands.ts"
import { headerBytes } from "../wire/header.ts"
import { register } from "../wire/operation.ts"
import { packedVersion } from "../wire/version.ts"
import { failureOf, newStream, open, soon, until } from "./connection.test-support.ts"
import {
  clusterMetadata,
  eviction,
  obliging,
  type Received,
  refusal,
  reply,
  ScriptedServer,
} from "./scripted-server.test-support.ts"

/** Section 2.6 of the protocol. */
const mostInFlight = 32

describe("logging in", () => {
  it("sends the recorded login and reads the recorded answer", async () => {
    const recorded = exchange("login_register", "ok")
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== register) return false
        visitor.send(recorded.response)
        return true
      }),
    )
    await using connection = await open(server.port)
    assert.equal(connection.serverVersion, "0.9.0-edge.5")
    assert.equal(connection.version, "0.11")
    const [login] = server.received
    assert.equal(login?.request, 0)
    assert.equal(login?.session, 0n)
    assert.notEqual(login?.client, 0n)
    await connection.request(ping, undefined, soon)
    const after = server.received.at(-1) as Received
    assert.equal(after.client, login?.client)
    assert.equal(after.session, recorded.response.readBigUInt64LE(headerBytes + 8))
    await connection.close()
  })

  it("fails for a wrong password with AuthenticationError, once", async () => {
    const recorded = exchange("login_register", "wrong_password_eviction_9")
    await using server = await ScriptedServer.start((_request, visitor) => visitor.send(recorded.response))
    const error = await failureOf(open(server.port))
    assert.ok(error instanceof AuthenticationError)
    assert.equal(error.outcome, "rejected")
    assert.equal(server.received.length, 1)
  })

  it("names the server's versions when it speaks others", async () => {
    const recorded = exchange("login_register", "incompatible_protocol_eviction_14")
    await using server = await ScriptedServer.start((_request, visitor) => visitor.send(recorded.response))
    const error = await failureOf(open(server.port, { version: "0.12" }))
    assert.equal(error.kind, "unsupported")
    assert.match(error.message, /0\.11\.0/)
  })

  it("speaks the wire that the server names", async () => {
    const newest = packedVersion("0.12")
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== register || request.body.readUInt32LE(0) === newest) return false
        visitor.send(eviction(14, { oldest: newest, newest }))
        return true
      }, "0.12"),
    )
    await using connection = await open(server.port)
    assert.equal(connection.version, "0.12")
    assert.equal(server.accepted, 1)
    await connection.close()
  })

  it("is repeated while a server that has just come up cannot take it", async () => {
    let refused = 0
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== register || refused++ >= 2) return false
        visitor.send(refusal(request, 58))
        return true
      }),
    )
    await using connection = await open(server.port)
    assert.ok(connection.ready)
    assert.equal(server.received.filter((request) => request.operation === register).length, 3)
    assert.equal(server.accepted, 1)
  })

  it("is repeated no longer than its time", async () => {
    await using server = await ScriptedServer.start((request, visitor) => visitor.send(refusal(request, 58)))
    const error = await failureOf(open(server.port, { dialTimeoutMs: 200 }))
    assert.equal(error.kind, "not-leader")
    assert.ok(server.received.length <= 8, `${server.received.length} logins`)
  })

  for (const [what, greeting, shown] of [
    ["an HTTP server", "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", /HTTP\/1\.1 400/],
    ["a NATS server", 'INFO {"server_id":"NDX","version":"2.15.2"}\r\n', /INFO/],
    ["a TLS server", "\x15\x03\x01\x00\x02\x02\x46", /TLS alert/],
  ] as const) {
    it(`says what ${what} said instead`, async () => {
      const foreign = createServer((socket) => {
        socket.on("error", () => undefined)
        socket.once("data", () => socket.end(Buffer.from(greeting, "latin1")))
      })
      foreign.listen(0, "127.0.0.1")
      await once(foreign, "listening")
      const error = await failureOf(open((foreign.address() as { port: number }).port))
      assert.match(error.message, shown)
      assert.equal(error.outcome, "rejected")
      foreign.close()
    })
  }

  it("gives up on a server that says nothing", async () => {
    await using server = await ScriptedServer.start(() => undefined)
    const clock = new VirtualClock()
    const opening = failureOf(open(server.port, { clock }))
    await until(() => server.received.length === 1)
    await clock.advance(2000)
    const error = await opening
    assert.equal(error.kind, "connection")
    assert.match(error.message, /said nothing/)
    assert.equal(clock.timers, 0)
  })

  it("is cancelled by its signal", async () => {
    await using server = await ScriptedServer.start(() => undefined)
    const abort = new AbortController()
    const opening = failureOf(open(server.port, { signal: abort.signal }))
    await until(() => server.received.length === 1)
    abort.abort()
    assert.equal((await opening).kind, "cancelled")
  })

  it("fails at once where nobody listens, after all addresses", async () => {
    const server = await ScriptedServer.start()
    await server.stop()
    const error = await failureOf(open(server.port))
    assert.equal(error.kind, "connection")
    assert.match(error.message, /nobody listens/)
  })
})

describe("requests", () => {
  it("are answered in any order, by number", async () => {
    const held: (() => void)[] = []
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== createStream.operation) return false
        held.push(() => visitor.send(refusal(request, 1012 + held.length, "result")))
        return true
      }),
    )
    await using connection = await open(server.port)
    const first = failureOf(connection.request(createStream, newStream, soon))
    const second = failureOf(connection.request(createStream, newStream, soon))
    await until(() => held.length === 2)
    for (const answer of held.toReversed()) answer()
    assert.equal((await first).context.command, "create_stream")
    await second
    await connection.close()
  })

  it(`are at most ${mostInFlight} in flight`, async () => {
    let answer = false
    const waiting: (() => void)[] = []
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (answer || request.code !== getStreams.code) return false
        waiting.push(() => visitor.send(reply(request, Buffer.alloc(0))))
        return true
      }),
    )
    await using connection = await open(server.port)
    const all = Array.from({ length: mostInFlight + 8 }, () => connection.request(getStreams, undefined, soon))
    await until(() => waiting.length === mostInFlight)
    await connection.request(ping, undefined, { timeoutMs: 50 }).catch((error: MillraceError) => {
      assert.equal(error.kind, "timeout")
      assert.equal(error.outcome, "rejected")
    })
    assert.equal(waiting.length, mostInFlight)
    answer = true
    for (const send of waiting) send()
    assert.equal((await Promise.all(all)).length, mostInFlight + 8)
    await connection.close()
  })

  it("that time out are unknown when they may have changed something, and a late answer harms nobody", async () => {
    const late: (() => void)[] = []
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== createStream.operation && request.code !== getStreams.code) return false
        late.push(() => visitor.send(reply(request, Buffer.alloc(0))))
        return true
      }),
    )
    const clock = new VirtualClock()
    await using connection = await open(server.port, { clock })
    const write = failureOf(connection.request(createStream, newStream, { timeoutMs: 1000 }))
    const read = failureOf(connection.request(getStreams, undefined, { timeoutMs: 1000 }))
    await until(() => late.length === 2)
    await clock.advance(1000)
    assert.deepEqual([(await write).kind, (await write).outcome], ["timeout", "unknown"])
    assert.deepEqual([(await read).kind, (await read).outcome], ["timeout", "rejected"])
    for (const send of late) send()
    await connection.request(ping, undefined, soon)
    assert.equal(connection.session, 1)
    await connection.close()
    assert.equal(clock.timers, 0)
  })

  it("are repeated as they are while the server cannot tell the commit", async () => {
    let refused = 0
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== createStream.operation || refused++ >= 2) return false
        visitor.send(refusal(request, 57, "result"))
        return true
      }),
    )
    await using connection = await open(server.port)
    await failureOf(connection.request(createStream, newStream, soon))
    const tries = server.received.filter((request) => request.operation === createStream.operation)
    assert.equal(tries.length, 3)
    assert.ok(tries.every((one) => one.frame.equals(tries[0]?.frame as Buffer)))
    await connection.close()
  })

  it("are not called rejected when a repetition is not accepted: the first may be committed yet", async () => {
    let answered = 0
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== createStream.operation) return false
        visitor.send(refusal(request, answered++ === 0 ? 57 : 58, "result"))
        return true
      }),
    )
    await using connection = await open(server.port)
    const error = await failureOf(connection.request(createStream, newStream, soon))
    assert.deepEqual([error.outcome, error.retryable, answered], ["unknown", true, 2])
    const refused = await failureOf(connection.request(createStream, newStream, soon))
    assert.deepEqual([refused.outcome, refused.kind], ["rejected", "not-leader"])
    await connection.close()
  })

  it("of a partition are not repeated: what became of them is unknown", async () => {
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== storeConsumerOffset.operation) return false
        visitor.send(refusal(request, 57))
        return true
      }),
    )
    await using connection = await open(server.port)
    const consumer = { kind: "consumer", id: "c" } as const
    const store = { consumer, stream: "s", topic: "t", partition: 0, offset: 1n, quorum: true }
    const error = await failureOf(connection.request(storeConsumerOffset, store, soon))
    assert.deepEqual([error.outcome, error.retryable], ["unknown", true])
    await connection.close()
  })

  it("that cannot be encoded are refused before they are sent", async () => {
    await using server = await ScriptedServer.start()
    await using connection = await open(server.port)
    const sent = server.received.length
    for (const name of ["", "x".repeat(256)]) {
      assert.equal((await failureOf(connection.request(createStream, { name, options: [] }, soon))).kind, "invalid")
    }
    assert.equal(server.received.length, sent)
    await connection.close()
  })
})

describe("clusters", () => {
  function nodes(leader: number, ports: readonly number[]): Buffer {
    const parts = [Buffer.from([0, 0, 0, 0]), Buffer.from([ports.length, 0, 0, 0])]
    ports.forEach((port, index) => {
      const node = Buffer.alloc(4 + 4 + 9 + 8 + 2)
      node.writeUInt32LE(9, 4)
      node.write("127.0.0.1", 8)
      node.writeUInt16LE(port, 17)
      node[25] = index === leader ? 0 : 1
      parts.push(node)
    })
    return Buffer.concat(parts)
  }

  it("are followed to their leader, whom writes then reach", async () => {
    await using leader = await ScriptedServer.start()
    await using follower = await ScriptedServer.start()
    const ports = [follower.port, leader.port]
    const script = obliging((request, visitor) => {
      if (request.code !== clusterMetadata) return false
      visitor.send(reply(request, nodes(1, ports)))
      return true
    })
    leader.script = script
    follower.script = script
    await using connection = await open(follower.port)
    assert.equal(connection.server, `127.0.0.1:${leader.port}`)
    await connection.close()
  })

  it("whose leader has moved are followed after a refusal that says so", async () => {
    await using first = await ScriptedServer.start()
    await using second = await ScriptedServer.start()
    let leader = 0
    const script = obliging((request, visitor) => {
      if (request.code === clusterMetadata) visitor.send(reply(request, nodes(leader, [first.port, second.port])))
      else if (request.operation === createStream.operation && leader === 1) visitor.send(refusal(request, 58))
      else return false
      return true
    })
    first.script = script
    second.script = script
    await using connection = await open(first.port)
    leader = 1
    const error = await failureOf(connection.request(createStream, newStream, soon))
    assert.deepEqual([error.kind, error.outcome, error.retryable], ["not-leader", "rejected", true])
    await until(() => connection.ready && connection.server.endsWith(`:${second.port}`))
    await connection.close()
  })
})

describe("closing", () => {
  it("settles everything, whatever the server does", async () => {
    for (const script of [
      obliging(),
      obliging((request) => request.operation !== register && request.code !== clusterMetadata),
    ]) {
      const server = await ScriptedServer.start(script)
      await using connection = await open(server.port)
      const pending = connection.request(createStream, newStream, soon).catch((error: MillraceError) => error)
      const [first, second] = [connection.close(), connection.close()]
      assert.equal(first, second)
      await first
      const error = await pending
      assert.ok(error instanceof MillraceError)
      assert.deepEqual([error.kind, error.outcome], ["closed", "unknown"])
      assert.equal((await failureOf(connection.request(ping, undefined, soon))).kind, "closed")
      await server.stop()
    }
  })

  it("works while the server is gone", async () => {
    const server = await ScriptedServer.start()
    const clock = new VirtualClock()
    await using connection = await open(server.port, { clock })
    await server.stop()
    await until(() => !connection.ready)
    await connection.close()
    assert.equal(clock.timers, 0)
  })
})
