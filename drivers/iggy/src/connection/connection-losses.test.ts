import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { VirtualClock } from "@millrace/runtime"
import { createStream, getStreams } from "../codec/catalog-commands.ts"
import { ping } from "../codec/server-commands.ts"
import { headerBytes, sizeAt } from "../wire/header.ts"
import { register } from "../wire/operation.ts"
import { diary, failureOf, newStream, open, soon, until } from "./connection.test-support.ts"
import { eviction, obliging, type Received, refusal, reply, ScriptedServer } from "./scripted-server.test-support.ts"

describe("losses", () => {
  it("fail what is under way truly, and the session comes back by itself", async () => {
    await using server = await ScriptedServer.start(
      obliging((request) => request.operation === createStream.operation || request.code === getStreams.code),
    )
    const { lines, options } = diary()
    await using connection = await open(server.port, options)
    const write = failureOf(connection.request(createStream, newStream, soon))
    const read = failureOf(connection.request(getStreams, undefined, soon))
    await until(() => server.received.length >= 4)
    server.cut()
    assert.deepEqual(
      [(await write).kind, (await write).outcome, (await write).retryable],
      ["connection", "unknown", true],
    )
    assert.deepEqual(
      [(await read).kind, (await read).outcome, (await read).retryable],
      ["connection", "rejected", true],
    )
    const none = await failureOf(connection.request(ping, undefined, soon))
    assert.deepEqual([none.kind, none.outcome, none.retryable], ["connection", "rejected", true])
    await until(() => connection.ready)
    await connection.request(ping, undefined, soon)
    assert.deepEqual(lines, ["session 1 ready", "session 1 lost", "lost", "session 2 ready", "restored"])
    const logins = server.received.filter((request) => request.operation === register)
    assert.notEqual(logins[0]?.client, logins[1]?.client)
    await connection.close()
  })

  it("by eviction lead to a new login with another client id on the same connection", async () => {
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.operation !== createStream.operation) return false
        visitor.send(eviction(13))
        return true
      }),
    )
    const { lines, options } = diary()
    await using connection = await open(server.port, options)
    const error = await failureOf(connection.request(createStream, newStream, soon))
    assert.deepEqual([error.kind, error.outcome, error.retryable], ["connection", "unknown", true])
    await until(() => connection.ready)
    await connection.request(ping, undefined, soon)
    assert.deepEqual(lines, ["session 1 ready", "session 1 lost", "session 2 ready"])
    assert.equal(server.accepted, 1)
    const logins = server.received.filter((request) => request.operation === register)
    assert.notEqual(logins[0]?.client, logins[1]?.client)
    await connection.close()
  })

  it("leave the client its id where it is to keep one, and requests count on", async () => {
    await using server = await ScriptedServer.start()
    await using connection = await open(server.port, { keepClient: true })
    await connection.request(createStream, newStream, soon).catch(() => undefined)
    server.cut()
    await until(() => !connection.ready)
    await until(() => connection.ready)
    await connection.request(ping, undefined, soon)
    assert.equal(new Set(server.received.map((request) => request.client)).size, 1)
    const numbers = server.received.map((request) => request.request).filter((number) => number > 0)
    assert.deepEqual(
      numbers,
      numbers.toSorted((left, right) => left - right),
    )
    assert.equal(new Set(numbers).size, numbers.length)
    await connection.close()
  })

  it("by a status 40 do the same", async () => {
    let asked = 0
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.code !== getStreams.code || asked++ > 0) return false
        visitor.send(refusal(request, 40))
        return true
      }),
    )
    await using connection = await open(server.port)
    const error = await failureOf(connection.request(getStreams, undefined, soon))
    assert.deepEqual([error.kind, error.outcome, error.retryable], ["connection", "rejected", true])
    await until(() => connection.ready)
    await connection.request(getStreams, undefined, soon)
    assert.equal(connection.session, 2)
    await connection.close()
  })

  it("end for good when the password is refused on the return", async () => {
    let wrong = false
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (!wrong || request.operation !== register) return false
        visitor.send(eviction(9))
        return true
      }),
    )
    const clock = new VirtualClock()
    await using connection = await open(server.port, { clock })
    wrong = true
    server.cut()
    await until(() => !connection.ready)
    await clock.advance(200)
    await until(() => server.accepted === 2)
    let error = await failureOf(connection.request(ping, undefined, soon))
    while (error.kind === "connection") {
      await new Promise((resolve) => setImmediate(resolve))
      error = await failureOf(connection.request(ping, undefined, soon))
    }
    assert.equal(error.kind, "authentication")
    await clock.advance(120_000)
    assert.equal(server.accepted, 2)
    await connection.close()
  })

  it("by silence are found by the heartbeat", async () => {
    await using server = await ScriptedServer.start(obliging((request) => request.code === ping.code))
    const clock = new VirtualClock()
    const { lines, options } = diary()
    await using connection = await open(server.port, { clock, ...options })
    const pinged = (): number => server.received.filter((request) => request.code === ping.code).length
    for (let beat = 1; beat <= 2; beat++) {
      await clock.advance(5000)
      await until(() => pinged() === beat)
    }
    assert.ok(connection.ready)
    await clock.advance(5000)
    assert.ok(!connection.ready)
    assert.deepEqual(lines.slice(0, 3), ["session 1 ready", "session 1 lost", "lost"])
    await connection.close()
    assert.equal(clock.timers, 0)
  })

  it("are tried at most 20 times in a minute, whatever is asked meanwhile", async () => {
    const server = await ScriptedServer.start()
    const clock = new VirtualClock()
    await using connection = await open(server.port, { clock })
    let silent = 0
    server.script = (_request, visitor) => {
      silent++
      visitor.socket.destroy()
    }
    server.cut()
    await until(() => !connection.ready)
    const before = server.accepted
    for (let ms = 0; ms < 60_000; ms += 250) {
      await failureOf(connection.request(ping, undefined, soon))
      await clock.advance(250)
      for (let turn = 0; turn < 6; turn++) await new Promise((resolve) => setImmediate(resolve))
    }
    assert.ok(server.accepted - before <= 20, `${server.accepted - before} tries`)
    assert.ok(silent >= 5, `${silent} tries`)
    await connection.close()
    await server.stop()
    assert.equal(clock.timers, 0)
  })
})

describe("bad bytes from the server", () => {
  const hostile: readonly (readonly [string, (request: Received) => Buffer])[] = [
    ["a size below a header", (request) => withSize(reply(request, Buffer.alloc(0)), 12)],
    ["a frame of another kind", (request) => withByte(reply(request, Buffer.alloc(0)), 60, 5)],
    ["an answer to nobody", (request) => reply({ ...request, request: request.request + 1000 }, Buffer.alloc(0))],
    ["a payload that ends early", (request) => reply(request, Buffer.from([1, 0, 0]))],
    [
      "a name of a length that is not there",
      (request) => reply(request, Buffer.concat([Buffer.alloc(32), Buffer.from([200, 65])])),
    ],
    ["garbage", () => Buffer.alloc(600, 0xee)],
  ]
  for (const [what, bytes] of hostile) {
    it(`${what}: the request fails, the connection is given up, another is made`, async () => {
      let done = false
      await using server = await ScriptedServer.start(
        obliging((request, visitor) => {
          if (done || request.code !== getStreams.code) return false
          done = true
          visitor.send(bytes(request))
          return true
        }),
      )
      await using connection = await open(server.port)
      const error = await failureOf(connection.request(getStreams, undefined, soon))
      assert.ok(["connection", "protocol"].includes(error.kind), error.message)
      await until(() => connection.ready && connection.session === 2)
      await connection.request(getStreams, undefined, soon)
      await connection.close()
    })
  }

  it("a reply above the limit fails its request alone", async () => {
    await using server = await ScriptedServer.start(
      obliging((request, visitor) => {
        if (request.code !== getStreams.code) return false
        const size = 200 << 20
        visitor.send(withSize(reply(request, Buffer.alloc(0)), size))
        const chunk = Buffer.alloc(1 << 20)
        for (let left = size - headerBytes; left > 0; left -= chunk.length)
          visitor.send(chunk.subarray(0, Math.min(left, chunk.length)))
        return true
      }),
    )
    await using connection = await open(server.port)
    const error = await failureOf(connection.request(getStreams, undefined, { timeoutMs: 20_000 }))
    assert.equal(error.kind, "record-too-large")
    await connection.request(ping, undefined, { timeoutMs: 20_000 })
    assert.equal(connection.session, 1)
    await connection.close()
  })
})

function withSize(frame: Buffer, size: number): Buffer {
  frame.writeUInt32LE(size, sizeAt)
  return frame
}

function withByte(frame: Buffer, at: number, value: number): Buffer {
  frame[at] = value
  return frame
}
