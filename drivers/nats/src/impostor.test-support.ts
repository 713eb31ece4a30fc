import { once } from "node:events"
import { createServer, type Server, type Socket } from "node:net"
import type { TestContext } from "node:test"

/** Something that listens and says what the test wants. */
export async function impostor(t: TestContext, behave: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket)
    socket.on("error", () => {
      // The client went away: what this test is about.
    })
    behave(socket)
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  if (address === null || typeof address === "string") throw new Error("a TCP listener has a port")
  return address.port
}

const greeting = (info: object = {}): string =>
  `INFO ${JSON.stringify({ server_id: "X", version: "2.15.0", headers: true, max_payload: 1_048_576, ...info })}\r\n`

/** A server that answers PING and, by `answer`, requests. */
export function speak(socket: Socket, answer: (line: string, socket: Socket) => void, info: object = {}): void {
  socket.write(greeting(info))
  let text = ""
  socket.on("data", (part) => {
    text += part.toString("latin1")
    for (let end = text.indexOf("\r\n"); end >= 0; end = text.indexOf("\r\n")) {
      const line = text.slice(0, end)
      text = text.slice(end + 2)
      if (line === "PING") socket.write("PONG\r\n")
      else answer(line, socket)
    }
  })
}

/** Sends a message to the client's subscription `sid`. */
export function respond(socket: Socket, subject: string, payload: string, sid = 1): void {
  socket.write(`MSG ${subject} ${sid} ${payload.length}\r\n${payload}\r\n`)
}
