/** One way to write under test, whatever it is: sends go in without being awaited, and how they ended is asked for together. */
import type { BackgroundOptions, Producer, ProducerOptions, PublishFailedError, SendOptions, Topic } from "millrace"

/** The ways that share the promises of order, of single storing and of a known outcome. */
export const waysToSend: readonly ("direct" | "background")[] = ["direct", "background"]
export type WayToSend = (typeof waysToSend)[number]

/** A producer of either way with its unsettled sends and what failed of them. */
export class Sending {
  readonly producer: Producer
  /** Rejections of direct sends and of sends that were not accepted, and what `onError` was told. */
  readonly failures: unknown[] = []
  #unsettled: Promise<unknown>[] = []
  readonly #note: (error: unknown) => unknown

  constructor(
    topic: Topic,
    way: WayToSend,
    options: Omit<ProducerOptions, "background"> & {
      readonly background?: BackgroundOptions
      /** What is kept of a failure, where there are too many to keep them whole. */
      readonly note?: (error: unknown) => unknown
    } = {},
  ) {
    const { background, note, ...rest } = options
    this.#note = note ?? ((error) => error)
    const onError = (error: PublishFailedError): void => void this.failures.push(this.#note(error))
    this.producer = topic.producer(way === "direct" ? rest : { ...rest, background: { onError, ...background } })
  }

  send(payload: Uint8Array, options?: SendOptions): void {
    this.#watch(options === undefined ? this.producer.send(payload) : this.producer.send(payload, options))
  }

  sendBatch(payloads: readonly Uint8Array[], options?: { readonly key?: string; readonly partition?: number }): void {
    this.#watch(this.producer.sendBatch(payloads, options))
  }

  /** Settles when every send before has settled, well or not, and its failure is known. */
  async settled(): Promise<void> {
    const unsettled = this.#unsettled
    this.#unsettled = []
    await Promise.all(unsettled)
    await this.producer.flush()
  }

  #watch(sent: Promise<unknown>): void {
    this.#unsettled.push(sent.catch((error: unknown) => this.failures.push(this.#note(error))))
  }
}
