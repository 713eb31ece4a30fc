import { randomInt } from "node:crypto"
import { once } from "node:events"
import { createServer } from "node:net"

/** Below the range that systems give to outgoing connections, so that a port is still free when its server comes back after a kill. */
const lowest = 15_000
const highest = 32_000
const mostTries = 1_000

/** Ports of 127.0.0.1 that nobody listens on, all different. Another process may be quicker: then the server says so, and others are tried. */
export async function freePorts(count: number): Promise<number[]> {
  const found = new Set<number>()
  for (let tries = 0; found.size < count; tries++) {
    if (tries === mostTries) throw new Error(`no ${count} free ports of 127.0.0.1 between ${lowest} and ${highest}`)
    const port = randomInt(lowest, highest)
    if (await isFree(port)) found.add(port)
  }
  return [...found]
}

/** Whether nobody listens on a port of 127.0.0.1. */
export async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    server.listen(port, "127.0.0.1")
    await once(server, "listening")
    server.close()
    await once(server, "close")
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return false
    throw error
  }
}
