import { MillraceError, type OffsetOwner, type Watermarks } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import type { ConsumerSettings } from "../consumer/consumer-options.ts"
import { asMillraceError } from "./failure.ts"
import type { Lane } from "./lane.ts"
import { checkPartition, findStarts, type StartPosition } from "./start-position.ts"

interface LookupHost {
  closed(): boolean
  started(lane: Lane, start: StartPosition): void
  startFailed(lane: Lane, error: MillraceError): void
  located(lane: Lane, marks: Watermarks): void
  locateFailed(lane: Lane, error: MillraceError): void
  /** Every partition of one call has been told. */
  settled(): void
  /** Telling them failed. */
  failed(error: MillraceError): void
}

/** Finds out where partitions begin, and what they hold: one call for many, an outcome for each. */
export class LaneLookups {
  readonly #context: ClientContext
  readonly #settings: ConsumerSettings
  readonly #owner: OffsetOwner | undefined
  readonly #host: LookupHost

  constructor(
    context: ClientContext,
    of: { readonly settings: ConsumerSettings; readonly owner: OffsetOwner | undefined },
    host: LookupHost,
  ) {
    this.#context = context
    this.#settings = of.settings
    this.#owner = of.owner
    this.#host = host
  }

  /** Answers `started` or `startFailed` for each. */
  start(lanes: readonly Lane[]): void {
    this.#outcomes(
      lanes,
      () => this.#findStarts(lanes),
      (lane, start) => this.#host.started(lane, start),
      (lane, error) => this.#host.startFailed(lane, error),
    )
  }

  /** Answers `located` or `locateFailed` for each. */
  locate(lanes: readonly Lane[]): void {
    this.#outcomes(
      lanes,
      () => this.#context.session.log.watermarks(lanes.map(({ partition }) => partition)),
      (lane, marks: Watermarks) => this.#host.located(lane, marks),
      (lane, error) => this.#host.locateFailed(lane, error),
    )
  }

  async #findStarts(lanes: readonly Lane[]): Promise<(StartPosition | MillraceError)[]> {
    // What a group gives exists; a number that a caller gives may not.
    for (const { claim, partition } of lanes) {
      if (claim === undefined) await checkPartition(this.#context.topics, partition)
    }
    const requests = lanes.map(({ partition, gainedLater }) => ({
      partition,
      startAt: gainedLater ? ({ kind: "next" } as const) : this.#settings.startAt,
    }))
    const { allowReplay } = this.#settings
    return findStarts(this.#context.session, requests, { owner: this.#owner, allowReplay })
  }

  /** Each gets its own outcome, also when the call as a whole fails. */
  #outcomes<V extends object>(
    lanes: readonly Lane[],
    call: () => Promise<(V | MillraceError)[]>,
    succeeded: (lane: Lane, value: V) => void,
    failed: (lane: Lane, error: MillraceError) => void,
  ): void {
    const settle = (outcomes: (lane: Lane, index: number) => void): void => {
      if (this.#host.closed()) return
      for (const [index, lane] of lanes.entries()) if (lane.live && !lane.draining) outcomes(lane, index)
      this.#host.settled()
    }
    call()
      .then(
        (answers) =>
          settle((lane, index) => {
            const answer = answers[index] as V | MillraceError
            if (answer instanceof MillraceError) failed(lane, answer)
            else succeeded(lane, answer)
          }),
        (error) => settle((lane) => failed(lane, asMillraceError(error))),
      )
      .catch((error) => this.#host.failed(asMillraceError(error)))
  }
}
