/**
 * A JetStream of three servers that does what a test says, over a real connection: one stream, its leader, and a replica on which
 * consumers are made, and which has as much of the stream as the test lets it.
 */
import type { Socket } from "node:net"
import type { TestContext } from "node:test"
import { impostor, speak } from "./impostor.test-support.ts"

/** The stream's name: a topic without a stream. */
export const scriptedStream = "ORDERS"

/** When it was made: the topic's history. */
export const scriptedLineage = "2026-01-01T00:00:00Z"

interface ScriptedConsumer {
  readonly name: string
  /** The last sequence that it has delivered, or passed. */
  at: number
  sent: number
  inbox: string
  /** Messages that may still be sent. */
  asked: number
  /** How much of the stream the server has that the consumer lies on. */
  sees: number
}

export class ScriptedJetStream {
  port = 0
  /** By sequence, so many seconds after the stream was made. A missing one was deleted. */
  readonly records: Map<number, string> = new Map()
  last = 0
  replicas = 3
  /** What the server has on which the next consumer is made; all of it by default. */
  replicaSees: number = Number.POSITIVE_INFINITY
  readonly consumers: ScriptedConsumer[] = []
  /** The requests of the JetStream API that came, without their prefix. */
  readonly requests: string[] = []
  readonly #subscriptions = new Map<string, string>()
  #socket: Socket | undefined

  static async open(t: TestContext): Promise<ScriptedJetStream> {
    const scripted = new ScriptedJetStream()
    scripted.port = await impostor(t, (socket) => {
      scripted.#socket = socket
      let publishing: { subject: string; reply: string } | undefined
      speak(socket, (line) => {
        if (publishing !== undefined) {
          const { subject, reply } = publishing
          publishing = undefined
          scripted.#hear(subject.replace("$JS.API.", ""), reply, line)
          return
        }
        const [verb, subject = "", ...rest] = line.split(" ")
        if (verb === "SUB") scripted.#subscriptions.set(subject, rest.at(-1) ?? "")
        if (verb === "PUB") publishing = { subject, reply: rest.length > 1 ? (rest[0] ?? "") : "" }
      })
    })
    return scripted
  }

  append(...texts: readonly string[]): void {
    for (const text of texts) this.records.set(++this.last, text)
    for (const consumer of this.consumers) this.#serve(consumer)
  }

  /** Every consumer that was asked for messages gives a sign of life. */
  beat(): void {
    for (const { asked, inbox } of this.consumers) if (asked > 0) this.#status(inbox, "100 Idle Heartbeat")
  }

  /** The servers of all consumers, and of those to come, have the whole stream now. */
  catchUp(): void {
    this.replicaSees = Number.POSITIVE_INFINITY
    for (const consumer of this.consumers) {
      consumer.sees = Number.POSITIVE_INFINITY
      this.#serve(consumer)
    }
  }

  #hear(request: string, reply: string, body: string): void {
    this.requests.push(request)
    const [area = "", verb = "", what = "", , fourth = ""] = request.split(".")
    const name = request.split(".").at(-1) ?? ""
    if (area === "INFO") this.#answer(reply, {})
    else if (area === "STREAM" && verb === "INFO") this.#answer(reply, this.#info())
    else if (area === "STREAM" && verb === "MSG") this.#get(reply, JSON.parse(body))
    else if (area === "CONSUMER" && verb === "CREATE") this.#create(name, reply, JSON.parse(body))
    else if (area === "CONSUMER" && verb === "INFO") this.#tell(name, reply)
    else if (area === "CONSUMER" && verb === "DELETE") this.#delete(name)
    else if (area === "CONSUMER" && verb === "MSG") this.#pull(fourth, reply, JSON.parse(body))
    else throw new Error(`nobody has said what ${area}.${verb} of ${what} answers`)
  }

  #info(): object {
    const sequences = [...this.records.keys()]
    const state = { first_seq: sequences[0] ?? this.last + 1, last_seq: this.last, messages: sequences.length }
    const config = { name: scriptedStream, subjects: ["orders"], num_replicas: this.replicas }
    return { config, created: scriptedLineage, state: { ...state, bytes: 0, consumer_count: 0 } }
  }

  #get(reply: string, { seq = 0, start_time }: { seq?: number; start_time?: string }): void {
    const from = start_time === undefined ? seq : (Date.parse(start_time) - Date.parse(scriptedLineage)) / 1000
    const found = [...this.records.keys()].find((sequence) => sequence >= from)
    if (found === undefined)
      this.#answer(reply, { error: { code: 404, err_code: 10037, description: "no message found" } })
    else this.#answer(reply, { message: { seq: found, data: "" } })
  }

  #create(name: string, reply: string, { config }: { config: { opt_start_seq: number } }): void {
    const at = config.opt_start_seq - 1
    const consumer = { name, at, sent: 0, inbox: "", asked: 0, sees: this.replicaSees }
    this.consumers.push(consumer)
    this.#answer(reply, this.#standing(consumer))
  }

  #tell(name: string, reply: string): void {
    const consumer = this.consumers.find((one) => one.name === name)
    if (consumer === undefined) this.#answer(reply, { error: { code: 404, err_code: 10014, description: "not found" } })
    else this.#answer(reply, this.#standing(consumer))
  }

  #delete(name: string): void {
    const at = this.consumers.findIndex((one) => one.name === name)
    if (at >= 0) this.consumers.splice(at, 1)
  }

  #pull(name: string, inbox: string, { batch }: { batch: number }): void {
    const consumer = this.consumers.find((one) => one.name === name)
    if (consumer === undefined) return
    consumer.inbox = inbox
    consumer.asked += batch
    this.#serve(consumer)
  }

  #pending({ at, sees }: ScriptedConsumer): number[] {
    return [...this.records.keys()].filter((sequence) => sequence > at && sequence <= sees)
  }

  #standing(consumer: ScriptedConsumer): object {
    return { num_pending: this.#pending(consumer).length, delivered: { consumer_seq: consumer.sent } }
  }

  #serve(consumer: ScriptedConsumer): void {
    const pending = this.#pending(consumer)
    while (consumer.asked > 0 && pending.length > 0) {
      const sequence = pending.shift() as number
      consumer.asked--
      consumer.sent++
      consumer.at = sequence
      const place = `$JS.ACK.${scriptedStream}.${consumer.name}.1.${sequence}.${consumer.sent}.1000000.${pending.length}`
      const text = this.records.get(sequence) ?? ""
      this.#socket?.write(`MSG ${consumer.inbox} ${this.#sid(consumer.inbox)} ${place} ${text.length}\r\n${text}\r\n`)
    }
  }

  #answer(reply: string, body: object): void {
    const text = JSON.stringify(body)
    this.#socket?.write(`MSG ${reply} ${this.#sid(reply)} ${text.length}\r\n${text}\r\n`)
  }

  #status(inbox: string, status: string): void {
    const head = `NATS/1.0 ${status}\r\n\r\n`
    this.#socket?.write(`HMSG ${inbox} ${this.#sid(inbox)} ${head.length} ${head.length}\r\n${head}\r\n`)
  }

  #sid(subject: string): string {
    const exact = this.#subscriptions.get(subject)
    if (exact !== undefined) return exact
    for (const [pattern, sid] of this.#subscriptions) {
      if (pattern.endsWith(".*") && subject.startsWith(pattern.slice(0, -1))) return sid
    }
    throw new Error(`nobody listens to ${subject}`)
  }
}
