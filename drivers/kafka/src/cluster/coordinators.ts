/** Which node coordinates which group. */
import { ClosedError, MillraceError, TimeoutError } from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { errorCode, kafkaError, meansOtherCoordinator } from "../errors.ts"
import { findCoordinatorApi } from "../protocol/api.ts"
import type { FindCoordinatorRequest } from "../protocol/messages.generated.ts"
import type { Cluster } from "./cluster.ts"

/** As many groups are remembered; more begin anew. */
const mostGroups = 10_000

/** From this version on, several groups can be asked for, and the answer has a list. */
const listVersion = 4

export interface CoordinatorsParts {
  readonly cluster: Pick<Cluster, "request" | "requestTimeoutMs">
  readonly clock: Clock
  /** The pause before the next question, when there is no coordinator yet; ends early when the cluster is closed. */
  readonly pause: () => Promise<void>
  readonly isClosed: () => boolean
}

export class Coordinators {
  readonly #parts: CoordinatorsParts
  readonly #known = new Map<string, number>()
  readonly #finding = new Map<string, Promise<number>>()

  constructor(parts: CoordinatorsParts) {
    this.#parts = parts
  }

  known(group: string): number | undefined {
    return this.#known.get(group)
  }

  forget(group: string): void {
    this.#known.delete(group)
  }

  /** All who ask for a group at one time share the question. @throws TimeoutError, ConnectionError, PermissionError */
  find(group: string, timeoutMs: number): Promise<number> {
    const known = this.#known.get(group)
    if (known !== undefined) return Promise.resolve(known)
    const under = this.#finding.get(group)
    if (under !== undefined) return under
    const finding = this.#find(group, timeoutMs).finally(() => this.#finding.delete(group))
    this.#finding.set(group, finding)
    return finding
  }

  async #find(group: string, timeoutMs: number): Promise<number> {
    const { cluster, clock, pause, isClosed } = this.#parts
    const deadlineMs = clock.monotonicMs() + timeoutMs
    const body = (version: number): FindCoordinatorRequest =>
      version >= listVersion ? { coordinatorKeys: [group] } : { key: group }
    for (;;) {
      const leftMs = deadlineMs - clock.monotonicMs()
      if (leftMs <= 0) {
        const message = `group ${JSON.stringify(group)} got no coordinator within ${timeoutMs} ms`
        throw new TimeoutError(message, { outcome: "rejected", context: { group } })
      }
      const options = { timeoutMs: leftMs, readOnly: true }
      const answer = await cluster.request(findCoordinatorApi, body, { kind: "any" }, options)
      const found = answer.coordinators.length > 0 ? answer.coordinators[0] : answer
      if (found === undefined) throw new MillraceError("protocol", `FindCoordinator told nothing of group ${group}`)
      const { errorCode: code, errorMessage: detail, nodeId } = found
      if (code === errorCode.none) {
        if (this.#known.size >= mostGroups) this.#known.clear()
        this.#known.set(group, nodeId)
        return nodeId
      }
      if (!meansOtherCoordinator(code)) {
        const what = `looking up the coordinator of group ${JSON.stringify(group)}`
        throw kafkaError(code, { what, context: { group }, detail, readOnly: true })
      }
      await pause()
      if (isClosed()) throw new ClosedError("the session is closed")
    }
  }
}
