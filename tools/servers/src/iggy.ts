import { join } from "node:path"
import { FaultProxy } from "./fault-proxy.ts"
import { probeIggy } from "./iggy-probe.ts"
import { iggyProgram } from "./iggy-program.ts"
import { freePorts } from "./ports.ts"
import { run } from "./programs.ts"
import type { ServerPlan } from "./server.ts"
import { Server } from "./server.ts"

/** How an Iggy server is started. */
export interface IggyOptions {
  /** The root user. Default `iggy`, with the password `iggy`. */
  readonly user?: string
  readonly password?: string
  /** Configuration by its variables, such as `IGGY_HEARTBEAT_INTERVAL: "2s"`. */
  readonly env?: Readonly<Record<string, string>>
  /** Where it listens; by default any free port. */
  readonly port?: number
  /** Whether a proxy stands between clients and the server. */
  readonly proxied?: boolean
}

/** Starts the Iggy server of the PATH on 127.0.0.1, TCP alone, one shard. @throws Error when there is none, or it does not come up */
export async function startIggy(options: IggyOptions = {}): Promise<Server> {
  const program = iggyProgram()
  if (program === undefined) throw new Error("there is no iggy-server on the PATH")
  const { stdout } = await run(program, ["--version"])
  const version = stdout.trim().split(/\s+/).at(-1) ?? "unknown"
  return Server.launch("iggy", (directory) => planIggy(directory, { ...options, program, version }))
}

async function planIggy(
  directory: string,
  options: IggyOptions & { readonly program: string; readonly version: string },
): Promise<ServerPlan> {
  const { user = "iggy", password = "iggy", program, version } = options
  const port = options.port ?? (await freePorts(1))[0] ?? 0
  const proxies = options.proxied ? [await FaultProxy.open({ to: { port } })] : []
  return {
    kind: "iggy",
    version,
    directPorts: [port],
    proxies,
    url: ([some]) => `iggy://${encodeURIComponent(user)}:${encodeURIComponent(password)}@127.0.0.1:${some}`,
    processes: [
      {
        name: "iggy server",
        command: program,
        args: [],
        env: {
          IGGY_ROOT_USERNAME: user,
          IGGY_ROOT_PASSWORD: password,
          IGGY_SYSTEM_PATH: join(directory, "data"),
          IGGY_TCP_ADDRESS: `127.0.0.1:${port}`,
          IGGY_HTTP_ENABLED: "false",
          IGGY_WEBSOCKET_ENABLED: "false",
          IGGY_QUIC_ENABLED: "false",
          // One shard that wanders: connection numbers follow each other, and other processes have the cores too.
          IGGY_SYSTEM_SHARDING_CPU_ALLOCATION: "1",
          IGGY_SYSTEM_SHARDING_PIN_CORES: "false",
          IGGY_SYSTEM_LOGGING_FILE_ENABLED: "false",
          IGGY_SYSTEM_MEMORY_POOL_SIZE: "512 MiB",
          IGGY_CONSUMER_GROUP_REBALANCING_TIMEOUT: "3s",
          ...options.env,
        },
        logFile: join(directory, "output.log"),
      },
    ],
    readyMs: 30_000,
    probe: () => probeIggy(port),
  }
}
