import { MillraceError } from "@millrace/contract"
import type { Consumer, Message, TransactionalProducer } from "@millrace/core"
import { numbered, numberIn } from "../record-number.ts"
import { streamName } from "../workload/world.ts"
import { inputTopic, outputTopic, relayGroup } from "./outputs.ts"
import { TransactionActor } from "./transaction-actor.ts"

/** A program that reads, writes and stores its progress in one transaction, by hand. It gives up at the first failure: another one follows. */
export class RelayActor extends TransactionActor {
  protected async work(): Promise<void> {
    const { chance, program, stage } = this
    const { client } = program
    const consumer = await stage.calls.follow(
      program,
      "join",
      client
        .stream(streamName)
        .topic(inputTopic)
        .consumerGroup(relayGroup)
        .consumer({
          commitPolicy: { kind: "disabled" },
          startAt: { kind: "first" },
          sessionTimeoutMs: 3000,
          rebalanceTimeoutMs: chance.of([500, 5000]),
          batchLength: chance.of([1, 5, 100]),
        }),
    )
    const producer = client.transactionalProducer({
      transactionalId: this.transactionalId,
      lingerMs: chance.of([0, 5]),
    })
    this.onEnd(() => producer.shutdown({ timeoutMs: 600_000 }))
    this.onEnd(() => consumer.shutdown({ timeoutMs: 600_000 }))
    await stage.calls.follow(program, "init", producer.init())
    while (!this.isOver) await this.#relay(consumer, producer)
  }

  async #relay(consumer: Consumer, producer: TransactionalProducer): Promise<void> {
    const { chance, program, stage } = this
    const messages = await this.#read(consumer, chance.of([1, 3, 20]))
    if (messages.length === 0) return
    const transaction = await stage.calls.follow(program, "begin", producer.begin())
    const output = program.client.stream(streamName).topic(outputTopic)
    for (const { payload } of messages) {
      const sent = transaction.send(output, numbered(numberIn(payload)))
      if (chance.happens(0.2)) await stage.calls.follow(program, "send", sent)
      else void stage.calls.attempt(program, "send", () => sent)
    }
    await stage.calls.follow(program, "sendOffsets", transaction.sendOffsets(consumer, messages))
    if (!stage.isTame() && chance.happens(0.1)) await program.sleep(chance.below(5000))
    await stage.calls.follow(program, "commit", transaction.commit())
  }

  async #read(consumer: Consumer, count: number): Promise<Message[]> {
    const { program, stage } = this
    const messages: Message[] = []
    while (messages.length < count && !this.isOver) {
      const withinMs = messages.length === 0 ? 1000 : 5
      try {
        messages.push(await stage.calls.follow(program, "nextWithin", consumer.nextWithin(withinMs)))
      } catch (error) {
        if (!(error instanceof MillraceError) || error.kind !== "timeout") throw error
        return messages
      }
    }
    return messages
  }
}
