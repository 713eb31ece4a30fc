import type { Manifest } from "@millrace/contract"
import type { SendResult } from "../producer/confirmation.ts"
import type { Destination } from "../producer/lane.ts"
import { prepareRecords, type SendableRecord } from "../record/outgoing-record.ts"
import { bufferBytesOf } from "../record/record-size.ts"
import type { SpoolEngine } from "./spool-engine.ts"
import type { SpoolIntake } from "./spool-intake.ts"

/** Refused records that are accepted anew at once. */
const mostAtOnce = 1_000

/** Accepts the records that were put aside anew: see `Spool.resendRefused`. */
export class RefusedResend {
  readonly #intake: SpoolIntake
  readonly #limits: Manifest["limits"]
  #turn: Promise<unknown> = Promise.resolve()

  constructor(intake: SpoolIntake, limits: Manifest["limits"]) {
    this.#intake = intake
    this.#limits = limits
  }

  /** One at a time: two would accept the same records. @param open Answers the spool, unless its producer was shut down. */
  run(open: () => Promise<SpoolEngine>): Promise<number> {
    const turn = this.#turn.then(async () => await this.#resend(await open()))
    this.#turn = turn.catch(() => {})
    return turn
  }

  async #resend({ refusals }: SpoolEngine): Promise<number> {
    let count = 0
    let bytes = 0
    let end = 0n
    let promises: Promise<SendResult>[] = []
    for await (const { stream, topic, record, offset } of refusals.list()) {
      const [prepared] = prepareRecords([record], this.#limits, { resend: true }) as [SendableRecord]
      const to: Destination = { name: { stream, topic }, route: { kind: "balanced" } }
      const accepting = this.#intake.acceptAll([prepared], to)
      // The next ones are read before anybody awaits it.
      accepting.catch(() => {})
      promises.push(accepting)
      count++
      bytes += bufferBytesOf(prepared)
      end = offset + 1n
      if (promises.length < mostAtOnce) continue
      await Promise.all(promises)
      promises = []
    }
    await Promise.all(promises)
    if (count > 0) await refusals.forget(end, { count, bytes })
    return count
  }
}
