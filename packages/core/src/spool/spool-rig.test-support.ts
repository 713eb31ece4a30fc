/** A producer with a spool over a fake backend, in processes that are killed and followed by others. */
import assert from "node:assert/strict"
import type { Manifest, PartitionLog, Session } from "@millrace/contract"
import { seededRandom, VirtualClock } from "@millrace/runtime"
import { type Client, openClient } from "../client/client.ts"
import type { BackgroundOptions } from "../producer/background-options.ts"
import { FakeBackend } from "../producer/fake-backend.test-support.ts"
import type { Producer } from "../producer/producer.ts"
import type { ProducerOptions } from "../producer/producer-options.ts"
import { DiskProcess, FakeDisk } from "./fake-disk.test-support.ts"
import type { Spool } from "./spool.ts"
import type { SpoolOptions } from "./spool-options.ts"

export type SpooledProducer = Producer & { readonly spool: Spool }

/** One life of the program. */
export interface Life {
  readonly process: DiskProcess
  readonly client: Client
  readonly producer: SpooledProducer
}

export class SpoolRig {
  readonly clock: VirtualClock = new VirtualClock()
  readonly disk: FakeDisk = new FakeDisk()
  readonly backend: FakeBackend
  /** What describing a topic of the backend fails with. */
  describeError: Error | undefined
  #lives = 0

  constructor(options: { readonly manifest?: Manifest; readonly partitions?: number } = {}) {
    this.backend = new FakeBackend(this.clock, options.manifest)
    this.backend.create("t", options.partitions ?? 1)
  }

  /** Starts the program anew. */
  live(
    background: Omit<BackgroundOptions, "spool"> & { readonly spool?: Partial<SpoolOptions> } = {},
    options: ProducerOptions = {},
    prepare: (process: DiskProcess) => void = () => {},
  ): Life {
    const process = new DiskProcess()
    prepare(process)
    const client = openClient(
      mortal(this.backend.session, process, () => this.describeError),
      {},
      {
        clock: this.clock,
        random: seededRandom(++this.#lives),
        openSpool: async () => this.disk.session(process),
      },
    )
    const spool = { directory: "spool", ...background.spool }
    const producer = client
      .stream("s")
      .topic("t")
      .producer({ ...options, background: { ...background, spool } }) as SpooledProducer
    return { process, client, producer }
  }

  /** Lets the virtual time run until the promise settles. */
  async run<T>(promise: Promise<T>, stepMs = 50): Promise<T> {
    let settled = false
    const watched = promise.finally(() => {
      settled = true
    })
    watched.catch(() => {})
    for (let steps = 0; !settled; steps++) {
      assert.ok(steps < 5_000, "nothing settled")
      await this.clock.advance(stepMs)
    }
    return await watched
  }

  /** Lets the virtual time run until something is so. */
  async until(condition: () => boolean, stepMs = 50): Promise<void> {
    for (let steps = 0; !condition(); steps++) {
      assert.ok(steps < 5_000, "it never came to be so")
      await this.clock.advance(stepMs)
    }
  }
}

/** The session of a process that can be killed: requests that it has sent may still arrive, and no answer does. */
function mortal(session: Session, process: DiskProcess, describeError: () => Error | undefined): Session {
  const { log, catalog } = session
  const mortalLog: PartitionLog = {
    ...log,
    append: (batch, options) => process.step("send", () => log.append(batch, options)),
    identify: (topic, bump) => process.look(() => log.identify(topic, bump)).then((identity) => identity),
  }
  return {
    ...session,
    catalog: {
      ...catalog,
      describeTopic: (name) =>
        process
          .look(() => {
            const error = describeError()
            return error === undefined ? catalog.describeTopic(name) : Promise.reject(error)
          })
          .then((found) => found),
    },
    log: mortalLog,
    close: async () => {},
  }
}

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
