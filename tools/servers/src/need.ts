import process from "node:process"
import { iggyProgram } from "./iggy-program.ts"
import { kafkaNeed } from "./kafka-program.ts"
import { natsNeed } from "./nats-program.ts"

/** The servers that can be started here. */
export type ServerKind = "kafka" | "nats" | "iggy"

/** What a caller wants of a server. */
export interface NeedOptions {
  /** `use` (default): one that somebody else started will do. `start`: it is to be killed or configured, so it must be its own. */
  readonly to?: "use" | "start"
}

const asked = new Map<ServerKind, Promise<string | undefined>>()

/** Why a server cannot run on this machine, for `t.skip(\`needs kafka: …\`)`; `undefined` when it can. Nothing is downloaded to find out. */
export function serverNeed(kind: ServerKind, { to = "use" }: NeedOptions = {}): Promise<string | undefined> {
  if (to === "use" && givenUrl(kind) !== undefined) return Promise.resolve(undefined)
  let need = asked.get(kind)
  if (need === undefined) {
    need = needs[kind]()
    asked.set(kind, need)
  }
  return need
}

/** The connection string of a server that somebody else runs: `MILLRACE_KAFKA_URL`, `MILLRACE_NATS_URL`, `MILLRACE_IGGY_URL`. */
export function givenUrl(kind: ServerKind): string | undefined {
  const url = process.env[`MILLRACE_${kind.toUpperCase()}_URL`]
  return url === "" ? undefined : url
}

const needs: Record<ServerKind, () => Promise<string | undefined>> = {
  kafka: kafkaNeed,
  nats: natsNeed,
  iggy: () =>
    Promise.resolve(iggyProgram() === undefined ? "no iggy-server on the PATH, and no MILLRACE_IGGY_URL" : undefined),
}
