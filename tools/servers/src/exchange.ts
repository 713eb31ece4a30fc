import type { Socket } from "node:net"
import { connect } from "node:net"

/** One request and its answer over a fresh connection: how servers are asked whether they are ready. */
export interface ExchangeOptions {
  readonly port: number
  /** Written as soon as the connection stands; absent where the server speaks first. */
  readonly request?: Uint8Array
  /** Gets all that has come so far, and answers the result once it is complete. May write more. */
  readonly read: (bytes: Buffer, socket: Socket) => Buffer | undefined
  /** Default 2,000. */
  readonly limitMs?: number
}

/** @throws Error when the connection fails or ends, or the limit is over */
export function exchange({ port, request, read, limitMs = 2_000 }: ExchangeOptions): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1" })
    let bytes: Buffer = Buffer.alloc(0)
    const settle = (result: () => void): void => {
      clearTimeout(timer)
      socket.destroy()
      result()
    }
    const timer = setTimeout(
      () => settle(() => reject(new Error(`port ${port} did not answer in ${limitMs} ms`))),
      limitMs,
    )
    if (request !== undefined) socket.once("connect", () => socket.write(request))
    socket.on("data", (part) => {
      try {
        bytes = Buffer.concat([bytes, part])
        const result = read(bytes, socket)
        if (result !== undefined) settle(() => resolve(result))
      } catch (error) {
        settle(() => reject(error))
      }
    })
    socket.once("error", (error) => settle(() => reject(error)))
    socket.once("end", () => settle(() => reject(new Error(`port ${port} ended the connection`))))
  })
}
