/** Each rule of the proxy, seen from a client and an echo server on either side. */
import assert from "node:assert/strict"
import { once } from "node:events"
import type { Server, Socket } from "node:net"
import { connect, createServer } from "node:net"
import type { TestContext } from "node:test"
import { test } from "node:test"
import { FaultProxy } from "./fault-proxy.ts"
import { run } from "./programs.ts"

/** A server that answers every chunk with itself in capital letters. */
class Echo {
  readonly port: number
  /** All that came, over all connections. */
  heard = ""
  readonly ends: string[] = []
  readonly #server: Server

  private constructor(server: Server, port: number) {
    this.#server = server
    this.port = port
    server.on("connection", (socket) => {
      socket.on("data", (part) => {
        this.heard += part
        socket.write(String(part).toUpperCase())
      })
      socket.on("error", (error: NodeJS.ErrnoException) => this.ends.push(error.code ?? "error"))
      socket.on("end", () => this.ends.push("end"))
    })
  }

  static async open(t: TestContext): Promise<Echo> {
    const server = createServer()
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
    t.after(() => server.close())
    return new Echo(server, (server.address() as { port: number }).port)
  }

  close(): void {
    this.#server.close()
  }
}

/** A client that notes what it hears and how it ends. */
class Peer {
  readonly socket: Socket
  heard = ""
  #how: string | undefined
  readonly #changes: (() => void)[] = []

  constructor(t: TestContext, port: number) {
    this.socket = connect({ port, host: "127.0.0.1" })
    this.socket.on("data", (part) => {
      this.heard += part
      this.#tell()
    })
    this.socket.on("end", () => {
      this.#how ??= "end"
    })
    this.socket.on("error", (error: NodeJS.ErrnoException) => {
      this.#how ??= error.code ?? "error"
    })
    this.socket.on("close", () => this.#tell())
    t.after(() => this.socket.destroy())
  }

  say(text: string): void {
    this.socket.write(text)
  }

  /** Resolves when it has heard exactly this. */
  async hears(text: string): Promise<void> {
    await this.#until(() => this.heard === text || this.socket.destroyed)
    assert.equal(this.heard, text)
  }

  /** Resolves when the connection is over: `end`, or the error's code. */
  async ends(): Promise<string | undefined> {
    await this.#until(() => this.socket.destroyed)
    return this.#how
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#changes.push(resolve))
  }

  #tell(): void {
    for (const change of this.#changes.splice(0)) change()
  }
}

async function scene(t: TestContext): Promise<{ echo: Echo; proxy: FaultProxy; peer: () => Peer }> {
  const echo = await Echo.open(t)
  const proxy = await FaultProxy.open({ to: { port: echo.port } })
  t.after(() => proxy.close())
  return { echo, proxy, peer: () => new Peer(t, proxy.port) }
}

const timeout = 10_000

test("without rules everything passes, and is counted", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const client = peer()
  client.say("hello")
  await client.hears("HELLO")
  assert.deepEqual(
    { accepted: proxy.accepted, open: proxy.open, bytes: proxy.bytes },
    { accepted: 1, open: 1, bytes: { toServer: 5, toClient: 5 } },
  )
  client.socket.end()
  assert.equal(await client.ends(), "end")
})

test("cut ends open connections on both sides, and lets new ones in", { timeout }, async (t) => {
  const { echo, proxy, peer } = await scene(t)
  const [first, second] = [peer(), peer()]
  first.say("a")
  second.say("b")
  await Promise.all([first.hears("A"), second.hears("B")])
  proxy.cut()
  assert.deepEqual(await Promise.all([first.ends(), second.ends()]), ["end", "end"])
  assert.equal(proxy.open, 0)
  const third = peer()
  third.say("c")
  await third.hears("C")
  assert.equal(proxy.accepted, 3)
  assert.deepEqual(echo.ends, ["end", "end"])
})

test("a cut can be a reset", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const client = peer()
  client.say("a")
  await client.hears("A")
  proxy.cut("reset")
  assert.equal(await client.ends(), "ECONNRESET")
})

test("refused connections find nobody listening, open ones stay", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const open = peer()
  open.say("a")
  await open.hears("A")
  await proxy.refuse(true)
  assert.equal(await peer().ends(), "ECONNREFUSED")
  open.say("b")
  await open.hears("AB")
  await proxy.refuse(false)
  const later = peer()
  later.say("c")
  await later.hears("C")
})

test("a connection is reset when the server behind is gone", { timeout }, async (t) => {
  const { echo, peer } = await scene(t)
  echo.close()
  assert.equal(await peer().ends(), "ECONNRESET")
})

test("a stall holds one direction until it flows again", { timeout }, async (t) => {
  const { echo, proxy, peer } = await scene(t)
  const client = peer()
  client.say("a")
  await client.hears("A")
  proxy.stall("toClient")
  client.say("b")
  const other = peer()
  other.say("c")
  while (echo.heard !== "abc") await new Promise((resolve) => setImmediate(resolve))
  // The answers are on their way for as long as a whole round takes on a connection past the proxy.
  const past = new Peer(t, echo.port)
  past.say("!")
  await past.hears("!")
  assert.deepEqual([client.heard, other.heard], ["A", ""])
  proxy.flow("toClient")
  await Promise.all([client.hears("AB"), other.hears("C")])
})

test("what waited flows on at once, also when nothing follows it and the stall ends in a timer", {
  timeout,
}, async (t) => {
  const { echo, proxy, peer } = await scene(t)
  const client = peer()
  client.say("a")
  await client.hears("A")
  proxy.stall("toServer")
  client.say("b")
  const past = new Peer(t, echo.port)
  past.say("!")
  await past.hears("!")
  assert.equal(echo.heard, "a!")
  setTimeout(() => proxy.flow("toServer"), 1)
  await client.hears("AB")
})

test("a stall holds what is under way too: delayed chunks, and the rest of a throttled one", { timeout }, async (t) => {
  const { echo, proxy, peer } = await scene(t)
  proxy.delay(50, "toClient")
  const delayed = peer()
  delayed.say("a")
  while (echo.heard !== "a") await new Promise((resolve) => setImmediate(resolve))
  proxy.stall("toClient")
  await new Promise((resolve) => setTimeout(resolve, 150))
  assert.equal(delayed.heard, "")
  proxy.delay(0, "toClient")
  proxy.flow("toClient")
  await delayed.hears("A")
  proxy.throttle(10_000, "toServer")
  const text = "x".repeat(2_000)
  const throttled = peer()
  throttled.say(text)
  while (proxy.bytes.toServer < 500) await new Promise((resolve) => setImmediate(resolve))
  proxy.stall("toServer")
  const { toServer } = proxy.bytes
  await new Promise((resolve) => setTimeout(resolve, 150))
  assert.equal(proxy.bytes.toServer, toServer)
  proxy.throttle(undefined)
  proxy.flow("toServer")
  await throttled.hears(text.toUpperCase())
})

test("a delay makes answers late, not the line narrow", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const client = peer()
  await once(client.socket, "connect")
  proxy.delay(100, "toClient")
  const begin = performance.now()
  client.say("a")
  await client.hears("A")
  assert.ok(performance.now() - begin >= 99)
  for (const letter of "bcdefghijklmnopqrstu") {
    client.say(letter)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await client.hears("ABCDEFGHIJKLMNOPQRSTU")
  assert.ok(performance.now() - begin < 1_500, "twenty chunks are under way together")
  proxy.delay(0)
})

test("a throttle passes so many bytes a second", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  proxy.throttle(20_000, "toServer")
  const client = peer()
  const text = "x".repeat(5_000)
  const begin = performance.now()
  client.say(text)
  await client.hears(text.toUpperCase())
  const tookMs = performance.now() - begin
  assert.ok(tookMs >= 200, `5,000 bytes took ${tookMs} ms`)
})

test("dropped bytes are missing from the stream", { timeout }, async (t) => {
  const { echo, proxy, peer } = await scene(t)
  proxy.dropBytes(3, "toServer")
  const client = peer()
  client.say("abcde")
  await client.hears("DE")
  assert.equal(echo.heard, "de")
  assert.equal(proxy.bytes.toServer, 2)
  client.say("fg")
  await client.hears("DEFG")
})

test("cut before the reply: the server did it, the client does not hear", { timeout }, async (t) => {
  const { echo, proxy, peer } = await scene(t)
  const fault = proxy.cutBeforeReply({ request: (bytes) => Buffer.from(bytes).includes("write") })
  const client = peer()
  client.say("read")
  await client.hears("READ")
  client.say("write")
  assert.equal(await client.ends(), "end")
  await fault.happened
  assert.equal(client.heard, "READ")
  assert.equal(echo.heard, "readwrite")
  const next = peer()
  next.say("write")
  await next.hears("WRITE")
  assert.equal(fault.count, 1)
})

test("cut after the reply: the client hears it, and then the end", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const fault = proxy.cutAfterReply({ times: 2 })
  for (const word of ["one", "two"]) {
    const client = peer()
    client.say(word)
    assert.equal(await client.ends(), "end")
    assert.equal(client.heard, word.toUpperCase())
  }
  await fault.happened
  const third = peer()
  third.say("three")
  await third.hears("THREE")
})

test("a cancelled fault does not happen", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  proxy.cutBeforeReply().cancel()
  const client = peer()
  client.say("a")
  await client.hears("A")
})

test("a script sees each chunk and says what becomes of it", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const seen: string[] = []
  proxy.script = ({ connection, direction, bytes, before }) => {
    const text = Buffer.from(bytes).toString()
    seen.push(`${connection} ${direction} ${before} ${text}`)
    if (text === "drop") return "drop"
    if (text === "alter") return Buffer.from("other")
    if (text === "late") return { delayMs: 20 }
    if (text === "cut") return "reset"
    return "pass"
  }
  const client = peer()
  client.say("drop")
  while (seen.length < 1) await new Promise((resolve) => setImmediate(resolve))
  client.say("alter")
  await client.hears("OTHER")
  client.say("late")
  await client.hears("OTHERLATE")
  client.say("cut")
  assert.equal(await client.ends(), "ECONNRESET")
  assert.deepEqual(seen, [
    "0 toServer 0 drop",
    "0 toServer 4 alter",
    "0 toClient 0 OTHER",
    "0 toServer 9 late",
    "0 toClient 5 LATE",
    "0 toServer 13 cut",
  ])
})

test("much passes whole and in order", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const client = peer()
  const text = Array.from({ length: 400_000 }, (_, index) => String.fromCharCode(65 + (index % 26)))
    .join("")
    .repeat(20)
  client.say(text)
  await client.hears(text)
  assert.deepEqual(proxy.bytes, { toServer: text.length, toClient: text.length })
})

test("a process can end after a reset behind an end", { timeout }, async () => {
  const program = `
    import { once } from "node:events"
    import { createServer, connect } from "node:net"
    import { ProxiedConnection } from ${JSON.stringify(new URL("./proxied-connection.ts", import.meta.url).href)}
    const server = createServer((socket) => socket.on("error", () => {})).listen(0, "127.0.0.1")
    const listener = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1")
    await Promise.all([once(server, "listening"), once(listener, "listening")])
    const client = connect({ port: listener.address().port, host: "127.0.0.1" })
    client.on("error", () => {})
    const [socket] = await once(listener, "connection")
    const line = () => ({ stalled: false, delayMs: 0, bytesPerSecond: undefined, dropBytes: 0 })
    const conditions = { toServer: line(), toClient: line(), judge: () => "pass", passed() {}, ended() {} }
    const to = { host: "127.0.0.1", port: server.address().port }
    const connection = new ProxiedConnection(0, socket, { to, conditions })
    await once(server, "connection")
    // The pipe has just passed the client's end on, and it is not sent yet.
    socket.once("end", () => connection.cut("reset"))
    client.end()
    await connection.closed
    server.close()
    listener.close()`
  await run(process.execPath, ["--input-type=module", "-e", program], { signal: AbortSignal.timeout(8_000) })
})

test("close cuts everything and frees the port", { timeout }, async (t) => {
  const { proxy, peer } = await scene(t)
  const client = peer()
  client.say("a")
  await client.hears("A")
  await proxy.close()
  assert.equal(await client.ends(), "ECONNRESET")
  assert.equal(await peer().ends(), "ECONNREFUSED")
})
