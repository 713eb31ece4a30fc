import { connect } from "node:net"
import process from "node:process"
import { startIggy } from "./iggy.ts"
import { startKafka } from "./kafka.ts"
import { startNats } from "./nats.ts"
import type { ServerKind } from "./need.ts"
import { givenUrl } from "./need.ts"
import type { Server } from "./server.ts"

/** A server that others use too: names in it must be the caller's alone, and it must not be harmed. */
export interface SharedServer {
  readonly kind: ServerKind
  readonly url: string
  /** The ports of `url`. */
  readonly ports: readonly number[]
  /** `unknown` for one that somebody else runs. */
  readonly version: string
}

/** The variable by which a test run tells its files where its servers are asked for. */
export const hostVariable = "MILLRACE_SERVERS_SOCKET"

const started = new Map<ServerKind, Promise<SharedServer>>()

/**
 * A server with the settings for tests: the one that `MILLRACE_KAFKA_URL` and its like name, else the one of this test run, started when the
 * first file asks; else, for a file that is run alone, one of this process, which ends with it.
 */
export function sharedServer(kind: ServerKind): Promise<SharedServer> {
  let server = started.get(kind)
  if (server === undefined) {
    server = find(kind)
    started.set(kind, server)
  }
  return server
}

/** Starts a server of this kind as tests want it. */
export function startServer(kind: ServerKind): Promise<Server> {
  return { kafka: startKafka, nats: startNats, iggy: startIggy }[kind]()
}

async function find(kind: ServerKind): Promise<SharedServer> {
  const given = givenUrl(kind)
  if (given !== undefined) return { kind, url: given, ports: portsOf(given), version: "unknown" }
  const host = process.env[hostVariable]
  if (host !== undefined && host !== "") return askHost(host, kind)
  // It has a guard and does not keep this process alive: it ends with it.
  const { url, ports, version } = await startServer(kind)
  return { kind, url, ports, version }
}

function portsOf(url: string): number[] {
  const hosts =
    url
      .replace(/^\w+:\/\//, "")
      .replace(/^[^@/]*@/, "")
      .split(/[/?]/)[0] ?? ""
  return hosts
    .split(",")
    .flatMap((host) => /:(\d+)$/.exec(host)?.[1] ?? [])
    .map(Number)
}

function askHost(path: string, kind: ServerKind): Promise<SharedServer> {
  return new Promise((resolve, reject) => {
    const socket = connect(path)
    let text = ""
    socket.on("data", (part) => {
      text += part
    })
    socket.once("error", reject)
    socket.once("end", () => {
      try {
        const answer = JSON.parse(text) as { readonly server?: SharedServer; readonly error?: string }
        if (answer.server !== undefined) resolve(answer.server)
        else reject(new Error(answer.error ?? `the test run did not say where its ${kind} server is`))
      } catch (error) {
        reject(error)
      }
    })
    socket.write(`${kind}\n`)
  })
}
