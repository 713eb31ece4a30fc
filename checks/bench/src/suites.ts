/** The suites by name: which ids they have, and what must run beside them. */
import { type Server, startIggy, startKafka, startNats } from "@millrace/servers"
import type { Benchmark } from "./benchmark.ts"
import { iggyIds, iggySuite } from "./brokers/iggy-suite.ts"
import { kafkaIds, kafkaSuite } from "./brokers/kafka-suite.ts"
import { natsIds, natsSuite } from "./brokers/nats-suite.ts"
import { consumerSuite } from "./consumer/suite.ts"
import { embeddedSuite } from "./embedded/suite.ts"
import { producerSuite } from "./producer/suite.ts"
import { queueSuite } from "./queue/suite.ts"
import { typedSuite } from "./typed/suite.ts"

export interface Suite {
  readonly ids: readonly string[]
  /** Starts what the suite needs. `about` says what was started. */
  open(): Promise<OpenSuite>
}

export interface OpenSuite {
  readonly benchmarks: readonly Benchmark[]
  readonly about: string
  close(): Promise<void>
}

export const suites: Readonly<Record<string, Suite>> = {
  embedded: withoutServer(embeddedSuite),
  producer: withoutServer(producerSuite),
  consumer: withoutServer(consumerSuite),
  typed: withoutServer(typedSuite),
  queue: withoutServer(queueSuite),
  kafka: onServer(kafkaIds, startKafka, kafkaSuite),
  nats: onServer(natsIds, startNats, natsSuite),
  iggy: onServer(iggyIds, startIggy, iggySuite),
}

function withoutServer(benchmarks: readonly Benchmark[]): Suite {
  return {
    ids: benchmarks.map((benchmark) => benchmark.id),
    open: async () => ({ benchmarks, about: "", close: async () => {} }),
  }
}

function onServer(
  ids: readonly string[],
  start: () => Promise<Server>,
  benchmarksOn: (url: string) => readonly Benchmark[],
): Suite {
  return {
    ids,
    async open() {
      const server = await start()
      return {
        benchmarks: benchmarksOn(server.url),
        about: `, server ${server.version} on this machine`,
        close: () => server.stop(),
      }
    },
  }
}
