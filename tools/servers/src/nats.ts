import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { FaultProxy } from "./fault-proxy.ts"
import { probeNats, probePlacement } from "./nats-probe.ts"
import type { NatsProgram } from "./nats-program.ts"
import { natsProgram } from "./nats-program.ts"
import { freePorts } from "./ports.ts"
import type { ServerPlan } from "./server.ts"
import { Server } from "./server.ts"

/** How a NATS server or cluster is started. */
export interface NatsOptions {
  /** Default 1. */
  readonly servers?: 1 | 3
  /** Asked of clients, when both are given. */
  readonly user?: string
  readonly password?: string
  /** The server's own configuration, on top of ours; `jetstream` is joined with ours. */
  readonly settings?: Readonly<Record<string, unknown>>
  /** Where the first server listens for clients; by default any free port, as for the others. */
  readonly port?: number
  /** Whether a proxy stands between clients and each server. */
  readonly proxied?: boolean
}

/** Starts NATS with JetStream on 127.0.0.1. @throws Error when it cannot be fetched, or does not come up */
export async function startNats(options: NatsOptions = {}): Promise<Server> {
  const program = await natsProgram()
  return Server.launch("nats", (directory) => planNats(directory, { ...options, program }))
}

async function planNats(
  directory: string,
  options: NatsOptions & { readonly program: NatsProgram },
): Promise<ServerPlan> {
  const { user, password, program } = options
  const count = options.servers ?? 1
  const nodes = Array.from({ length: count }, (_, index) => join(directory, `server-${index + 1}`))
  const ports = await freePorts(2 * count)
  const clientPorts = [options.port ?? ports[0] ?? 0, ...ports.slice(1, count)]
  const routePorts = ports.slice(count)
  const proxies = options.proxied ? await Promise.all(clientPorts.map((port) => FaultProxy.open({ to: { port } }))) : []
  const login = user === undefined ? "" : `${encodeURIComponent(user)}:${encodeURIComponent(password ?? "")}@`
  const configure = async (node: string, index: number): Promise<void> => {
    await mkdir(node)
    const { jetstream, ...settings } = options.settings ?? {}
    const configuration = {
      server_name: `millrace-${index + 1}`,
      listen: `127.0.0.1:${clientPorts[index]}`,
      jetstream: { store_dir: join(node, "data"), ...(jetstream as object | undefined) },
      ...(user === undefined ? {} : { authorization: { user, password } }),
      // In a cluster clients are told of the other servers: of their proxies, where there are any.
      ...(proxies.length === 0 ? {} : { client_advertise: `127.0.0.1:${proxies[index]?.port}` }),
      ...(count === 1 ? {} : { cluster: clusterOf(index, routePorts) }),
      ...settings,
    }
    await writeFile(join(node, "server.conf"), JSON.stringify(configuration, undefined, 2))
  }
  return {
    kind: "nats",
    version: program.version,
    directPorts: clientPorts,
    proxies,
    url: (some) => `nats://${login}${some.map((port) => `127.0.0.1:${port}`).join(",")}`,
    processes: nodes.map((node, index) => ({
      name: `nats server ${index + 1}`,
      command: program.path,
      args: ["--config", join(node, "server.conf")],
      logFile: join(node, "output.log"),
    })),
    readyMs: 30_000,
    prepare: async () => {
      await Promise.all(nodes.map(configure))
    },
    probe: async (asked) => {
      await Promise.all(asked.map((index) => probeNats(clientPorts[index] ?? 0, { user, password })))
      const whole = count > 1 && asked.length === count
      if (whole) await probePlacement(clientPorts[0] ?? 0, { user, password }, count)
    },
  }
}

function clusterOf(index: number, routePorts: readonly number[]): object {
  return {
    name: "millrace",
    listen: `127.0.0.1:${routePorts[index]}`,
    routes: routePorts.filter((_, other) => other !== index).map((port) => `nats://127.0.0.1:${port}`),
  }
}
