/** docs/backends.md: one part that follows from the manifests alone, and one that a run of the suites fills in. */
import type { Manifest } from "@millrace/contract"
import { embeddedDriver } from "@millrace/embedded"
import { iggyDriver } from "@millrace/iggy"
import { kafkaDriver } from "@millrace/kafka"
import { natsDriver } from "@millrace/nats"
import { absences, manifestTable } from "./manifest-table.ts"

/** The most that each backend can do, by the name that the page uses. */
export const manifests: ReadonlyMap<string, Manifest> = new Map([
  ["embedded", embeddedDriver.manifest],
  ["Kafka", kafkaDriver.manifest],
  ["NATS", natsDriver.manifest],
  ["Iggy", iggyDriver.manifest],
])

/** Everything up to the results. */
export function manifestPart(): string {
  return `# Backends

One contract, four backends. What they differ in is data: a driver's manifest, from which this page is made (\`npm run backends\`). The table shows the most
that each can do; a session's manifest (\`client.manifest\`) says what the server at hand can do, which limits it has among others. What a backend lacks is refused
before anything is sent, with the reason and what to use instead: nothing is emulated with weaker promises.

How each backend maps to streams, topics, partitions and offsets is said in [the embedded log](embedded.md), [Kafka](drivers/kafka.md), [NATS](drivers/nats.md)
and [Iggy](drivers/iggy.md).

## Manifests

${manifestTable(manifests)}

## What is lacking, and what to use instead

${absences(manifests)}

`
}
