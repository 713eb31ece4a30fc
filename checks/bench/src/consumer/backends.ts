/** The backends that a benchmark of groups runs on: the embedded log, and each server that this machine can start. */
import { join } from "node:path"
import { type Server, type ServerKind, serverNeed, startKafka, startNats } from "@millrace/servers"
import type { Scratch } from "../scratch.ts"

export interface GroupBackend {
  readonly name: string
  readonly url: string
}

const servers: Readonly<Partial<Record<ServerKind, () => Promise<Server>>>> = { kafka: startKafka, nats: startNats }

/** Calls `measure` for one backend after the other. Servers that cannot be started are left out. */
export async function onEachBackend<R>(scratch: Scratch, measure: (backend: GroupBackend) => Promise<R>): Promise<R[]> {
  const results = [
    await scratch.within((directory) => measure({ name: "embedded", url: `file:${join(directory, "store")}` })),
  ]
  for (const [name, start] of Object.entries(servers)) {
    if ((await serverNeed(name as ServerKind, { to: "start" })) !== undefined) continue
    await using server = await start()
    results.push(await measure({ name, url: server.url }))
  }
  return results
}
