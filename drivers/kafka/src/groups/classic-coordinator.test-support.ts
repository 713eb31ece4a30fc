/** A coordinator of the classic protocol: everybody joins, then everybody is told. What a member's machine is tested against. */
import type { Assignor, TopicPart } from "./assignor.ts"
import type { ClassicAnswer, ClassicCall } from "./classic-protocol.machine.ts"
import { gone, seat } from "./consumer-coordinator.test-support.ts"

type Join = ClassicCall & { readonly name: "join" }

export class ClassicCoordinator {
  generation = 0
  readonly #assignor: Assignor
  readonly #counts: ReadonlyMap<string, number>
  /** The members, and of those who are joining what they said. */
  readonly #members = new Map<string, Join | undefined>()
  readonly #answers = new Map<string, (answer: ClassicAnswer) => void>()
  #preparing = false
  #ids = 0

  constructor(partitions: number, assignor: Assignor) {
    this.#counts = new Map([["t", partitions]])
    this.#assignor = assignor
  }

  takesCommit(memberId: string, generation: number): boolean {
    return this.#members.has(memberId) && generation === this.generation
  }

  /** As after its session timeout: a join that waits is answered, so that the member can come back (`removeMemberAndUpdateGroup`). */
  fence(memberId: string): void {
    if (!this.#members.delete(memberId)) return
    const answer = this.#answers.get(memberId)
    this.#answers.delete(memberId)
    this.#preparing = true
    answer?.({ kind: "gone", unknown: true, error: gone("UNKNOWN_MEMBER_ID") })
    this.#complete()
  }

  handle(call: ClassicCall, answer: (answer: ClassicAnswer) => void): void {
    const known = this.#members.has(call.memberId)
    if (call.name === "leave") {
      this.fence(call.memberId)
      answer({ kind: "left" })
    } else if (!known && call.memberId !== "") {
      answer({ kind: "gone", unknown: true, error: gone("UNKNOWN_MEMBER_ID") })
    } else if (call.name === "beat") {
      if (call.generation !== this.generation)
        answer({ kind: "gone", unknown: false, error: gone("ILLEGAL_GENERATION") })
      else answer({ kind: this.#preparing ? "rebalance" : "beat" })
    } else {
      const memberId = call.memberId === "" ? `member-${++this.#ids}` : call.memberId
      this.#preparing = true
      this.#members.set(memberId, call)
      this.#answers.set(memberId, answer)
      this.#complete()
    }
  }

  #complete(): void {
    if (!this.#preparing || [...this.#members.values()].includes(undefined)) return
    this.#preparing = false
    this.generation++
    const members = [...this.#members].map(([memberId, join]) => ({
      memberId,
      instanceId: undefined,
      topics: ["t"],
      owned: (join as Join).owned.map(({ partition }): TopicPart => ({ topic: "t", partition })),
      generation: (join as Join).generation,
    }))
    const given = this.#assignor.assign(members, this.#counts)
    const answers = [...this.#answers]
    this.#answers.clear()
    for (const memberId of this.#members.keys()) this.#members.set(memberId, undefined)
    for (const [memberId, answer] of answers) {
      const target = (given.get(memberId) ?? []).map(({ partition }) => seat(partition))
      answer({ kind: "joined", memberId, generation: this.generation, eager: this.#assignor.eager, target })
    }
  }
}
