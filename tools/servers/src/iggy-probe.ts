import { exchange } from "./exchange.ts"

const headerBytes = 256
const sizeAt = 48
const commandAt = 60
const statusAt = 216
const requestCommand = 5
const replyCommand = 8
/** The operation of reads and pings, with the command's code beside it. */
const nonReplicated = 2
const pingCode = 1

/** Pings a server of wire 0.11. @throws Error when it does not answer, or not that it is well */
export async function probeIggy(port: number): Promise<void> {
  const ping = Buffer.alloc(headerBytes)
  ping.writeUInt32LE(headerBytes, sizeAt)
  ping[commandAt] = requestCommand
  // The client's id, which must not be 0.
  ping.writeUInt32LE(0x6d696c6c, 128)
  ping[176] = nonReplicated
  ping.writeUInt32LE(pingCode, 196)
  const reply = await exchange({
    port,
    request: ping,
    read: (bytes) => (bytes.length < headerBytes ? undefined : bytes),
  })
  if (reply[commandAt] !== replyCommand || reply.readUInt32LE(statusAt) !== 0) {
    throw new Error(
      `port ${port} answers a ping with command ${reply[commandAt]}, status ${reply.readUInt32LE(statusAt)}`,
    )
  }
}
