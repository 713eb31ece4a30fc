/**
 * Starts a server for people: `npm run servers -- kafka`, `nats` or `iggy`, with `--brokers 3` for a cluster of the first two. It runs until
 * Ctrl-C; its data is removed then.
 */
import { once } from "node:events"
import process from "node:process"
import { parseArgs } from "node:util"
import { startIggy } from "./iggy.ts"
import { startKafka } from "./kafka.ts"
import { startNats } from "./nats.ts"
import type { ServerKind } from "./need.ts"
import { serverNeed } from "./need.ts"
import { isFree } from "./ports.ts"
import type { Server } from "./server.ts"

const usage = "usage: npm run servers -- kafka|nats|iggy [--brokers 1|3]"
/** Where people expect each. */
const usualPorts: Record<ServerKind, number> = { kafka: 9092, nats: 4222, iggy: 8090 }
const stillEveryMs = 5_000

const { kind, brokers } = readArguments()
const reason = await serverNeed(kind, { to: "start" })
if (reason !== undefined) fail(`${kind} cannot be started here: ${reason}`)

const server = await startWithNews()
console.log(`${kind} ${server.version} runs at ${server.url}`)
console.log(`  in code:      await connect("${server.url}")`)
console.log(`  the example:  MILLRACE_URL=${server.url} npm start`)
console.log(`  its data and output: ${server.directory}`)
console.log("Ctrl-C ends it and removes its data.")
const stay = setInterval(() => {}, 2 ** 30)
await Promise.race(["SIGINT", "SIGTERM", "SIGHUP"].map((signal) => once(process, signal)))
clearInterval(stay)
await server.stop()
console.log(`${kind} is ended.`)
process.exit()

function readArguments(): { readonly kind: ServerKind; readonly brokers: 1 | 3 } {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: { brokers: { type: "string", default: "1" } },
    })
    const [name, ...more] = positionals
    if (more.length > 0 || (name !== "kafka" && name !== "nats" && name !== "iggy")) fail(usage)
    if (values.brokers !== "1" && values.brokers !== "3")
      fail(`--brokers ${values.brokers} is neither 1 nor 3\n${usage}`)
    if (name === "iggy" && values.brokers === "3") fail("iggy runs as one server here")
    return { kind: name, brokers: values.brokers === "1" ? 1 : 3 }
  } catch (error) {
    return fail(`${error instanceof Error ? error.message : error}\n${usage}`)
  }
}

/** A first start fetches the server, which takes a while: whoever waits hears that it goes on. */
async function startWithNews(): Promise<Server> {
  const begin = performance.now()
  const news = setInterval(() => {
    console.error(`… ${Math.round((performance.now() - begin) / 1_000)} s`)
  }, stillEveryMs)
  try {
    const usual = usualPorts[kind]
    const place = (await isFree(usual)) ? { port: usual } : {}
    if (kind === "kafka") return await startKafka({ brokers, ...place })
    if (kind === "nats") return await startNats({ servers: brokers, ...place })
    return await startIggy(place)
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error))
  } finally {
    clearInterval(news)
  }
}

function fail(message: string): never {
  console.error(message)
  process.exit(1)
}
