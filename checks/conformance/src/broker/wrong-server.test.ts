/** A URL that leads to something else than the server it names: a typed error within the time, that names the address. */
import assert from "node:assert/strict"
import { once } from "node:events"
import { type AddressInfo, createServer, type Server, type Socket } from "node:net"
import { after, describe, test } from "node:test"
import { connect, MillraceError } from "millrace"
import { settlesWithin } from "../rig/deadline.ts"

const schemes = ["kafka", "nats", "iggy"] as const

const connectTimeoutMs = 1_500

/** What listens there, by how it treats a connection. */
const strangers: Readonly<Record<string, (socket: Socket) => void>> = {
  "a server that says nothing": () => {},
  "a server that closes at once": (socket) => socket.end(),
  "a server that resets": (socket) => socket.resetAndDestroy(),
  "a web server": (socket) =>
    socket.on("data", () => socket.end("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")),
  "a server that speaks TLS": (socket) => socket.on("data", () => socket.end(Buffer.from("15030300020232", "hex"))),
  "a mail server": (socket) => socket.write("220 mail.example ESMTP\r\n"),
  "a NATS server of another kind": (socket) => socket.write('INFO {"server_id":"x","version":"0.1.0"}\r\n'),
  "a server of negative lengths": (socket) =>
    socket.on("data", () =>
      socket.write(Buffer.concat([Buffer.from([0xff, 0xff, 0xff, 0xfe]), Buffer.alloc(300, 0xff)])),
    ),
  "a server of huge lengths": (socket) =>
    socket.on("data", () =>
      socket.write(Buffer.concat([Buffer.from([0x7f, 0xff, 0xff, 0xff]), Buffer.alloc(300, 0x7f)])),
    ),
  "a server of zeros": (socket) => socket.on("data", () => socket.write(Buffer.alloc(4_096))),
  "a server of noise": (socket) =>
    socket.on("data", () =>
      socket.write(Buffer.from(Array.from({ length: 4_096 }, (_, index) => (index * 181 + 97) & 0xff))),
    ),
  "a server without end": (socket) =>
    socket.on("data", () => {
      const chunk = Buffer.alloc(65_536, 0x41)
      for (let sent = 0; sent < 64; sent++) socket.write(chunk)
    }),
}

const servers: Server[] = []
const sockets = new Set<Socket>()

after(() => {
  for (const socket of sockets) socket.destroy()
  for (const server of servers) server.close()
})

for (const scheme of schemes) {
  describe(`${scheme}: on the other end is not what the URL says`, () => {
    for (const [name, treat] of Object.entries(strangers)) {
      test(name, async () => {
        const port = await listen(treat)
        const user = scheme === "iggy" ? "u:secret@" : ""
        const before = process.memoryUsage().rss
        const connecting = connect(`${scheme}://${user}127.0.0.1:${port}`, { connectTimeoutMs })
        const [outcome] = await settlesWithin("connect", Promise.allSettled([connecting]), connectTimeoutMs + 2_000)
        assert.ok(outcome?.status === "rejected", "it connected")
        const error: unknown = outcome.reason
        assert.ok(error instanceof MillraceError, `not a MillraceError: ${String(error)}`)
        assert.ok(
          ["connection", "protocol", "timeout", "unsupported", "authentication"].includes(error.kind),
          `${error.kind}: ${error.message}`,
        )
        assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${port}`))
        assert.ok(!error.message.includes("secret") && !String(error.stack).includes("secret"))
        assert.ok(process.memoryUsage().rss - before < 128 << 20, "memory grew without bound")
      })
    }
  })
}

async function listen(treat: (socket: Socket) => void): Promise<number> {
  const server = createServer((socket) => {
    sockets.add(socket)
    // The client hangs up on what it does not understand.
    socket.on("error", () => {})
    socket.on("close", () => sockets.delete(socket))
    treat(socket)
  }).listen(0, "127.0.0.1")
  servers.push(server)
  await once(server, "listening")
  return (server.address() as AddressInfo).port
}
