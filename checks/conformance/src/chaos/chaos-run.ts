/**
 * Numbered records with keys go through a broker that is killed and restarted under way, behind a proxy that cuts connections before
 * the broker's answer comes through.
 */
import type { Server } from "@millrace/servers"
import { connect, type Producer, PublishFailedError, type Topic } from "millrace"
import { lanePayload } from "../crash/lane.ts"
import type { ConfirmedRecord } from "./chaos-checker.ts"

/** Each lane is one key: its records lie in one partition, in the order of the sends. */
const lanes = 16
const partitions = 4

/** Sends of one lane that are under way at once. */
const window = 50

/** Sends are tried for longer than any of the outages lasts. */
const patience = { publishTimeoutMs: 30_000, publishRetries: 200, publishRetryBackoffMs: 50 }

export interface ChaosOptions {
  /** A server of its own, with a proxy before each process. */
  readonly server: Server
  readonly records: number
  /** How often the server is killed and started again. */
  readonly kills: number
  /** How many connections are cut before a reply. */
  readonly cuts: number
}

export interface ChaosResult {
  readonly topic: { readonly stream: string; readonly topic: string; readonly partitions: number }
  readonly confirmed: readonly ConfirmedRecord[]
  /** Sends that failed for good, with their reasons. */
  readonly failed: readonly string[]
  readonly cuts: number
  readonly kills: number
}

/** Sends everything, and answers what was confirmed. The server is up at the end. */
export async function runChaos({ server, records, kills, cuts }: ChaosOptions): Promise<ChaosResult> {
  const client = await connect(server.url, patience)
  try {
    const topic = client.stream("chaos").topic(`records-${Date.now().toString(36)}`)
    await topic.ensure(partitions)
    const confirmed: ConfirmedRecord[] = []
    const failed: string[] = []
    const trouble = new Trouble(server, { kills, cuts, records })
    const perLane = Math.ceil(records / lanes)
    const told = (record: ConfirmedRecord): void => {
      confirmed.push(record)
      trouble.confirmed(confirmed.length)
    }
    await Promise.all(Array.from({ length: lanes }, (_, lane) => send(topic, `lane${lane}`, { perLane, told, failed })))
    await trouble.end()
    return {
      topic: { stream: topic.stream, topic: topic.name, partitions },
      confirmed,
      failed,
      cuts: trouble.cuts,
      kills: trouble.kills,
    }
  } finally {
    await client.close()
  }
}

interface Ledger {
  readonly perLane: number
  readonly told: (record: ConfirmedRecord) => void
  readonly failed: string[]
}

/** One lane from its first record to its last. A send that fails is sent again with its id, as users are told to. */
async function send(topic: Topic, lane: string, { perLane, told, failed }: Ledger): Promise<void> {
  await using producer: Producer = topic.producer()
  const underWay: Promise<void>[] = []
  for (let counter = 0; counter < perLane; counter++) {
    const payload = lanePayload(lane, counter)
    const sent = producer.send(payload, { key: lane }).then(
      ({ confirmations: [one] }) => {
        told(
          one === undefined ? { lane, counter } : { lane, counter, partition: one.partition, offset: one.baseOffset },
        )
      },
      (error: unknown) => {
        const reason =
          error instanceof PublishFailedError ? `${error.message}: ${error.publishCause().message}` : String(error)
        failed.push(`${lane}:${counter}: ${reason}`)
      },
    )
    underWay.push(sent)
    if (underWay.length >= window) await underWay.shift()
  }
  await Promise.all(underWay)
}

/** What happens to the server, by how far the sending has come. */
class Trouble {
  readonly #server: Server
  readonly #killAt: number[]
  readonly #cutAt: number[]
  #restarting: Promise<void> = Promise.resolve()
  #up = true
  kills = 0
  cuts = 0

  constructor(server: Server, plan: { readonly kills: number; readonly cuts: number; readonly records: number }) {
    this.#server = server
    const spread = (count: number, shift: number): number[] =>
      Array.from({ length: count }, (_, index) => Math.floor(((index + shift) * plan.records) / (count + 1)))
    this.#killAt = spread(plan.kills, 1)
    this.#cutAt = spread(plan.cuts, 0.5)
  }

  confirmed(count: number): void {
    if (!this.#up) return
    if (count >= (this.#cutAt[0] ?? Number.POSITIVE_INFINITY)) {
      this.#cutAt.shift()
      for (const proxy of this.#server.proxies) {
        const fault = proxy.cutBeforeReply({ how: this.cuts % 2 === 0 ? "end" : "reset" })
        void fault.happened.then(() => {
          this.cuts++
        })
      }
    }
    if (count >= (this.#killAt[0] ?? Number.POSITIVE_INFINITY)) {
      this.#killAt.shift()
      this.#up = false
      this.#restarting = this.#restart()
    }
  }

  /** Settles when the server is up for good. @throws when it did not come up again */
  end(): Promise<void> {
    return this.#restarting
  }

  async #restart(): Promise<void> {
    await this.#server.kill("SIGKILL")
    this.kills++
    await this.#server.start()
    this.#up = true
  }
}
