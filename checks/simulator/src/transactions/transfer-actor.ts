import { MillraceError } from "@millrace/contract"
import type { Transaction, TransactionalProducer } from "@millrace/core"
import { numbered } from "../record-number.ts"
import { streamName } from "../workload/world.ts"
import { TransactionActor } from "./transaction-actor.ts"
import type { TransactionFact } from "./transaction-facts.ts"

/** How a program ends a transaction. */
type Ending = "commit" | "abort" | "dispose" | "within" | "withinFails" | "prepare" | "leave"

/** What a program of `within` fails with. */
class Trouble extends Error {}

/** A program that writes to several partitions at once, and ends its transactions in every way. */
export class TransferActor extends TransactionActor {
  protected async work(): Promise<void> {
    const { chance, program, stage } = this
    const timeoutMs = stage.isTame() ? 60_000 : chance.of([500, 5000, 60_000])
    const producer = program.client.transactionalProducer({
      transactionalId: this.transactionalId,
      timeoutMs,
      ...(chance.happens(0.3) ? { flushTimeoutMs: 200 } : {}),
      ...(chance.happens(0.5) ? { retries: chance.of([0, 10]) } : {}),
      lingerMs: chance.of([0, 5]),
      batchLength: chance.of([1, 3, 1000]),
    })
    this.onEnd(() => producer.shutdown({ timeoutMs: 600_000 }))
    while (!this.isOver) {
      // Its abort was refused, and this program does not ask again: another one fences it.
      if (producer.state === "InTransaction") return
      if (!["Ready", "Prepared"].includes(producer.state) && !(await this.#init(producer))) return
      if (producer.state === "Prepared") await this.#complete(producer)
      else if (producer.state === "Ready") await this.#transact(producer, timeoutMs)
      if (producer.state === "Fenced" || producer.state === "FatalError") return
      await program.sleep(chance.between(1, 300))
    }
  }

  /** False when this program is done with. */
  async #init(producer: TransactionalProducer): Promise<boolean> {
    const { chance, program, stage, transactionalId } = this
    const kept = stage.desk.kept.get(transactionalId)
    const keepPrepared = kept === undefined ? chance.happens(0.5) : stage.isTame() || chance.happens(0.8)
    const failure = await stage.calls.attempt(program, `init${keepPrepared ? " that keeps" : ""}`, () =>
      producer.init({ keepPrepared }),
    )
    if (failure !== undefined) {
      await program.sleep(chance.between(10, 500))
      return failure.kind !== "fenced" && failure.kind !== "closed" && producer.state !== "FatalError"
    }
    stage.desk.note(program, `is ${producer.state}`)
    if (kept === undefined) return true
    // What was prepared is aborted, or its end had come before.
    if (!keepPrepared || producer.state === "Ready") stage.desk.kept.forget(transactionalId)
    return true
  }

  async #complete(producer: TransactionalProducer): Promise<void> {
    const { chance, program, stage, transactionalId } = this
    const kept = stage.desk.kept.get(transactionalId)
    const isRight = kept !== undefined && chance.happens(0.7)
    const token = isRight ? kept.token : chance.of(["", "of another time"])
    if (isRight) kept.fact.asked++
    let ending: "committed" | "aborted" | undefined
    const failure = await stage.calls.attempt(program, `complete(${JSON.stringify(token)})`, async () => {
      ending = await producer.complete(token)
    })
    stage.desk.note(program, `complete: ${ending ?? failure?.outcome}`)
    if (failure !== undefined) {
      if (isRight && failure.outcome === "rejected") kept.fact.refused++
      return
    }
    if (!isRight && ending === "committed") {
      stage.desk.violate("another token commits nothing", `complete(${JSON.stringify(token)}) has committed`)
    }
    if (kept !== undefined && ending === "aborted") kept.fact.isAborted = true
    if (kept !== undefined && ending === "committed") kept.fact.isCommitted = true
    stage.desk.kept.forget(transactionalId)
  }

  async #transact(producer: TransactionalProducer, timeoutMs: number): Promise<void> {
    const { chance, program, stage } = this
    const how = stage.isTame()
      ? chance.of<Ending>(["commit", "within"])
      : chance.weighted<Ending>([
          [5, "commit"],
          [2, "abort"],
          [1, "dispose"],
          [2, "within"],
          [1, "withinFails"],
          [3, "prepare"],
          [1, "leave"],
        ])
    if (how === "within" || how === "withinFails") {
      await this.#within(producer, how === "withinFails")
      return
    }
    let transaction: Transaction | undefined
    const failure = await stage.calls.attempt(program, "begin", async () => {
      transaction = await producer.begin()
    })
    if (failure !== undefined || transaction === undefined) return
    const fact = stage.desk.fact(this.transactionalId)
    stage.desk.note(program, `begins transaction ${fact.id}, to ${how}`)
    await this.#fill(transaction, fact, timeoutMs)
    if (how === "commit") await this.#commit(transaction, fact)
    else if (how === "abort") await this.#abort(transaction, fact)
    else if (how === "dispose") await this.#dispose(transaction, fact)
    else if (how === "prepare") await this.#prepare(transaction, fact)
    else await this.#leave(producer)
  }

  async #fill(transaction: Transaction, fact: TransactionFact, timeoutMs: number): Promise<void> {
    const { chance, program, stage } = this
    const sends: Promise<unknown>[] = []
    for (let times = chance.below(7); times > 0; times--) {
      const topic = program.client.stream(streamName).topic(chance.of(stage.outputs))
      const count = chance.of([1, 1, 4])
      const numbers = Array.from({ length: count }, () => stage.freshNumber())
      const route = chance.happens(0.5) ? { partition: 0 } : {}
      const sent = (): Promise<void> =>
        count === 1
          ? transaction.send(topic, numbered(numbers[0] as number), route)
          : transaction.sendBatch(topic, numbers.map(numbered), route)
      const sending = stage.calls.attempt(program, "send", sent).then((failure) => {
        if (failure === undefined) fact.numbers.push(...numbers)
      })
      sends.push(sending)
      if (chance.happens(0.4)) await sending
      if (!stage.isTame() && chance.happens(0.1)) await program.sleep(chance.below(2 * timeoutMs))
    }
    await Promise.all(sends)
  }

  async #commit(transaction: Transaction, fact: TransactionFact): Promise<void> {
    const { chance, program, stage } = this
    for (let times = 3; times > 0; times--) {
      fact.asked++
      const failure = await stage.calls.attempt(program, `commit of ${fact.id}`, async () => {
        const { confirmations } = await transaction.commit()
        fact.isCommitted = true
        const count = confirmations.reduce((sum, one) => sum + one.count, 0)
        if (count !== fact.numbers.length) {
          const text = `transaction ${fact.id} of ${fact.numbers.length} records is confirmed with ${count}`
          stage.desk.violate("what is confirmed is what was sent", text)
        }
      })
      if (failure === undefined) {
        if (chance.happens(0.2)) await this.#expectState(transaction)
        return
      }
      if (failure.outcome === "rejected") fact.refused++
      if (transaction.ending !== "open" || !chance.happens(0.5)) break
      await program.sleep(chance.between(1, 200))
    }
    if (transaction.ending === "open") await this.#abort(transaction, fact)
  }

  async #abort(transaction: Transaction, fact: TransactionFact): Promise<void> {
    const { program, stage } = this
    const failure = await stage.calls.attempt(program, `abort of ${fact.id}`, () => transaction.abort())
    if (failure === undefined) fact.isAborted = true
  }

  async #dispose(transaction: Transaction, fact: TransactionFact): Promise<void> {
    const { program, stage } = this
    const failure = await stage.calls.attempt(program, `disposal of ${fact.id}`, async () =>
      transaction[Symbol.asyncDispose](),
    )
    if (failure === undefined && transaction.ending === "aborted") fact.isAborted = true
  }

  async #prepare(transaction: Transaction, fact: TransactionFact): Promise<void> {
    const { chance, program, stage, transactionalId } = this
    let token: string | undefined
    const failure = await stage.calls.attempt(program, `prepare of ${fact.id}`, async () => {
      token = await transaction.prepare()
    })
    if (failure !== undefined || token === undefined) {
      if (transaction.ending === "open") await this.#abort(transaction, fact)
      return
    }
    stage.desk.note(program, `prepared ${fact.id} as ${token}`)
    stage.desk.kept.keep(transactionalId, { token, fact })
    if (chance.happens(0.5)) await program.sleep(chance.below(5000))
    const how = chance.of(["commit", "abort", "complete", "leave"] as const)
    if (how === "complete" || how === "leave") {
      // Another incarnation may end it: this one, begun again, or another program.
      if (how === "leave") this.isOver = true
      return
    }
    if (how === "commit") await this.#commit(transaction, fact)
    else await this.#abort(transaction, fact)
    if (fact.isCommitted || fact.isAborted) {
      if (stage.desk.kept.get(transactionalId)?.fact === fact) stage.desk.kept.forget(transactionalId)
    }
  }

  async #within(producer: TransactionalProducer, fails: boolean): Promise<void> {
    const { program, stage } = this
    const fact = stage.desk.fact(this.transactionalId)
    let isFilled = false
    try {
      await stage.calls.follow(
        program,
        `within of ${fact.id}`,
        producer.within(async (transaction) => {
          await this.#fill(transaction, fact, 60_000)
          isFilled = true
          if (fails) throw new Trouble("not this time")
          fact.asked++
        }),
        (error) => error instanceof Trouble,
      )
      fact.isCommitted = true
    } catch (error) {
      if (!(error instanceof MillraceError) && !(error instanceof Trouble)) throw error
      if (isFilled && error instanceof MillraceError && error.outcome === "rejected") fact.refused++
    }
  }

  /** A second end is refused, whatever it is. */
  async #expectState(transaction: Transaction): Promise<void> {
    const { program, stage } = this
    const failure = await stage.calls.attempt(program, "abort behind a commit", () => transaction.abort())
    if (failure === undefined) stage.desk.violate("one end", "an abort behind a commit succeeds")
  }

  /** The program goes away, or goes on without its transaction. */
  async #leave(producer: TransactionalProducer): Promise<void> {
    const { chance, program, stage } = this
    this.isOver = true
    if (chance.happens(0.5)) {
      await stage.calls.attempt(program, "shutdown", () => producer.shutdown({ timeoutMs: chance.of([0, 5000]) }))
    }
  }
}
