/** Asking a group's coordinator, and finding it again when it is another one, within one call's time. */
import type { MillraceError } from "@millrace/contract"
import { backoffMs, type Clock, type Random } from "@millrace/runtime"
import type { Cluster } from "../cluster/cluster.ts"
import { kafkaError, meansOtherCoordinator } from "../errors.ts"
import type { Pauses } from "../pauses.ts"

/** The pauses between the attempts of one call, in ms. */
const firstPauseMs = 20
const longestPauseMs = 500

/** The coordinator's refusal to be the one, or not to be ready. Thrown by what `Attempts.run` runs. */
class OtherCoordinator extends Error {
  readonly code: number
  constructor(code: number) {
    super(`the coordinator answered error ${code}`)
    this.code = code
  }
}

/** @throws OtherCoordinator when the code means that */
export function checkCoordinator(code: number): void {
  if (meansOtherCoordinator(code)) throw new OtherCoordinator(code)
}

export interface AttemptTools {
  readonly cluster: Cluster
  readonly clock: Clock
  readonly random: Random
  readonly pauses: Pauses
}

/** The attempts of one call: bounded by the session's request timeout, or a limit of the call's own. */
export class Attempts {
  readonly #tools: AttemptTools
  readonly #group: string
  readonly #endMs: number
  #tries = 0

  constructor(tools: AttemptTools, group: string, limitMs: number = tools.cluster.requestTimeoutMs) {
    this.#tools = tools
    this.#group = group
    this.#endMs = tools.clock.monotonicMs() + limitMs
  }

  /** Runs until the right coordinator answers. @throws the coordinator's refusal, retryable, when the time is over */
  async run<T>(ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await ask()
      } catch (error) {
        if (!(error instanceof OtherCoordinator)) throw error
        this.#tools.cluster.invalidateCoordinator(this.#group)
        if (!(await this.pause())) throw this.#refusal(error.code)
      }
    }
  }

  /** Waits a moment, or until the session is closed; `false` when the time is over. */
  async pause(): Promise<boolean> {
    const { clock, random, pauses } = this.#tools
    const pauseMs = backoffMs(this.#tries++, firstPauseMs, longestPauseMs)
    const jittered = pauseMs / 2 + (pauseMs / 2) * (random.uint32() / 2 ** 32)
    if (clock.monotonicMs() + jittered >= this.#endMs) return false
    await pauses.wait(jittered)
    return true
  }

  #refusal(code: number): MillraceError {
    return kafkaError(code, { what: `asking the coordinator of group ${JSON.stringify(this.#group)}`, readOnly: true })
  }
}
