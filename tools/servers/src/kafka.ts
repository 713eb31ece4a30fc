import { randomBytes } from "node:crypto"
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { FaultProxy } from "./fault-proxy.ts"
import { probeBroker } from "./kafka-probe.ts"
import { kafkaJars } from "./kafka-program.ts"
import { brokerProperties, log4jSettings } from "./kafka-settings.ts"
import { freePorts } from "./ports.ts"
import { run } from "./programs.ts"
import type { ServerPlan } from "./server.ts"
import { Server } from "./server.ts"

/** How a Kafka cluster is started. */
export interface KafkaOptions {
  /** Each is broker and controller. Default 1. With three, topics have three copies, and two must confirm. */
  readonly brokers?: 1 | 3
  /** Broker settings, as in `server.properties`, on top of those for tests. */
  readonly settings?: Readonly<Record<string, string>>
  /** Whether a proxy stands between clients and each broker. */
  readonly proxied?: boolean
  /** Where the first broker listens for clients; by default any free port, as for the others. */
  readonly port?: number
  /** Given to the virtual machine, on top of what makes it small and quick to start. Default: what makes it compile in a hurry. */
  readonly javaOptions?: readonly string[]
}

/** Quick to start: code is compiled once, and not for speed. */
const hurriedJava = ["-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]

/** Starts Kafka in KRaft mode on 127.0.0.1. @throws Error when it cannot be fetched, or does not come up */
export async function startKafka(options: KafkaOptions = {}): Promise<Server> {
  const jars = await kafkaJars()
  return Server.launch("kafka", (directory) => planKafka(directory, { ...options, jars }))
}

async function planKafka(
  directory: string,
  options: KafkaOptions & { readonly jars: { readonly directory: string; readonly version: string } },
): Promise<ServerPlan> {
  const count = options.brokers ?? 1
  const nodes = Array.from({ length: count }, (_, index) => join(directory, `broker-${index + 1}`))
  const ports = await freePorts(3 * count)
  const clientPorts = [options.port ?? ports[0] ?? 0, ...ports.slice(1, count)]
  const internalPorts = ports.slice(count, 2 * count)
  const controllerPorts = ports.slice(2 * count)
  const proxies = options.proxied ? await Promise.all(clientPorts.map((port) => FaultProxy.open({ to: { port } }))) : []
  const java = [...(options.javaOptions ?? hurriedJava), "-cp", join(options.jars.directory, "*")]
  const log4j = join(directory, "log4j2.yaml")
  return {
    kind: "kafka",
    version: options.jars.version,
    // Clients past the proxies use the listener of the brokers themselves: the other one sends them back to the proxies.
    directPorts: proxies.length === 0 ? clientPorts : internalPorts,
    proxies,
    url: (some) => `kafka://${some.map((port) => `127.0.0.1:${port}`).join(",")}`,
    processes: nodes.map((node, index) => ({
      name: `kafka broker ${index + 1}`,
      command: "java",
      args: [...java, `-Dlog4j2.configurationFile=${log4j}`, "kafka.Kafka", join(node, "server.properties")],
      logFile: join(node, "output.log"),
    })),
    readyMs: 120_000,
    prepare: async () => {
      await writeFile(log4j, log4jSettings)
      const cluster = clusterId()
      const format = async (node: string, index: number): Promise<void> => {
        await mkdir(node)
        const settings = brokerProperties({
          node: index + 1,
          directory: node,
          clientPort: clientPorts[index] ?? 0,
          advertisedPort: proxies[index]?.port ?? clientPorts[index] ?? 0,
          internalPort: internalPorts[index] ?? 0,
          controllerPorts,
          more: options.settings ?? {},
        })
        const file = join(node, "server.properties")
        await writeFile(file, settings)
        const tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", file]
        await run("java", [
          ...hurriedJava,
          "-cp",
          join(options.jars.directory, "*"),
          `-Dlog4j2.configurationFile=${log4j}`,
          ...tool,
        ])
      }
      await Promise.all(nodes.map(format))
    },
    probe: async (asked, running) => {
      const brokers = running.map((index) => index + 1)
      await Promise.all(asked.map((index) => probeBroker(clientPorts[index] ?? 0, brokers)))
    },
  }
}

/** 16 random bytes as the storage tool takes them: an id that begins with `-` would be read as an option of its own. */
function clusterId(): string {
  const bytes = randomBytes(16)
  bytes.writeUInt8(bytes.readUInt8(0) & 0x7f, 0)
  return bytes.toString("base64url")
}
