import { MillraceError } from "@millrace/contract"
import { deadLetter, type Processor } from "@millrace/core"
import { numbered, numberIn } from "../record-number.ts"
import { streamName } from "../workload/world.ts"
import { deadTopic, inputTopic, isPoison, outputsOf, outputTopic, processGroup } from "./outputs.ts"
import { TransactionActor } from "./transaction-actor.ts"

/** What handlers fail with. */
class Trouble extends Error {}

/** A member of a group that consumes, transforms and produces by `client.process`. */
export class ProcessorActor extends TransactionActor {
  protected async work(): Promise<void> {
    const { program, stage } = this
    const processor = this.#open()
    this.onEnd(() => processor.shutdown({ timeoutMs: 600_000 }))
    try {
      await stage.calls.follow(program, "done", processor.done, (error) => error instanceof Trouble)
    } catch (error) {
      if (!(error instanceof MillraceError) && !(error instanceof Trouble)) throw error
      stage.desk.note(program, `is out: ${String(error)}`)
    }
    if (program.isAlive && !this.isOver) await this.end("shutdown", 600_000)
  }

  #open(): Processor {
    const { chance, program, stage } = this
    const stream = program.client.stream(streamName)
    const isAsync = chance.happens(0.5)
    return program.client.process({
      from: {
        topic: stream.topic(inputTopic),
        group: processGroup,
        startAt: { kind: "first" },
        sessionTimeoutMs: 3000,
        rebalanceTimeoutMs: chance.of([500, 5000]),
        ...(chance.happens(0.3) ? { memberId: `member-${chance.below(2)}` } : {}),
      },
      to: stream.topic(outputTopic),
      ...(chance.happens(0.5) ? { batchLength: chance.of([1, 3, 20]) } : {}),
      ...(chance.happens(0.3) ? { maxTransactionMs: chance.of([1, 200]) } : {}),
      ...(chance.happens(0.3) && !stage.isTame() ? { timeoutMs: 1000 } : {}),
      ...(chance.happens(0.3) ? { flushTimeoutMs: 500 } : {}),
      ...(chance.happens(0.5) ? { retries: chance.of([0, 1]) } : {}),
      retry: { attempts: 3, backoffMs: chance.of([1, 500]) },
      onFailure: deadLetter(stream.topic(deadTopic)),
      handler: (message) => {
        const number = numberIn(message.payload)
        return isAsync ? this.#slowly(number) : this.#outputs(number)
      },
    })
  }

  async #slowly(number: number): Promise<Uint8Array | Uint8Array[] | undefined> {
    const { chance, program } = this
    if (chance.happens(0.5)) await program.sleep(chance.below(chance.of([3, 50, 2000])))
    return this.#outputs(number)
  }

  /** @throws Trouble for poison, and now and then for others, which succeed in the end. */
  #outputs(number: number): Uint8Array | Uint8Array[] | undefined {
    if (isPoison(number)) throw new Trouble("poison")
    const outputs = Array.from({ length: outputsOf(number) }, () => numbered(number))
    return outputs.length === 1 ? outputs[0] : outputs.length === 0 ? undefined : outputs
  }
}
