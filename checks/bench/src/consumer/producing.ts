import { systemClock, type Timer } from "@millrace/runtime"
import type { Producer, Topic } from "millrace"
import { payloadAt } from "../producer/load.ts"

const everyMs = 5

/** A background producer that sends one record to each partition every 5 ms, until it is disposed. */
export class Producing implements AsyncDisposable {
  readonly #producer: Producer
  readonly #partitions: number
  readonly #fail: (error: unknown) => void
  #timer: Timer | undefined
  #sent = 0
  #failure: unknown

  constructor(topic: Topic, partitions: number) {
    const fail = (error: unknown): void => {
      this.#failure ??= error
    }
    this.#producer = topic.producer({ background: { onError: fail } })
    this.#fail = fail
    this.#partitions = partitions
    this.#turn()
  }

  #turn(): void {
    for (let partition = 0; partition < this.#partitions; partition++) {
      this.#producer.send(payloadAt(this.#sent++), { partition }).catch(this.#fail)
    }
    this.#timer = systemClock.setTimer(everyMs, () => this.#turn())
  }

  /** @throws what a send failed with */
  async stop(): Promise<void> {
    this.#timer?.cancel()
    await this.#producer.shutdown()
    if (this.#failure !== undefined) throw this.#failure
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }
}
