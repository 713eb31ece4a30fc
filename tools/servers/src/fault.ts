import type { Chunk, ProxiedConnection, Verdict } from "./proxied-connection.ts"

/** Which request is to lose its connection. */
export interface CutRule {
  /** Given each chunk of a request, as it comes from the client: whether it is the one. Default: the next one. */
  readonly request?: (bytes: Uint8Array) => boolean
  /** Given each chunk that comes back after it: whether it is the answer. Default: the first one. */
  readonly reply?: (bytes: Uint8Array) => boolean
  /** How often it happens. Default 1. */
  readonly times?: number
  /** What both sides see. Default `end`. */
  readonly how?: "end" | "reset"
}

/** A cut that waits for its request. */
export interface Fault {
  /** Resolves when it has happened as often as it was to. Never rejects; it stays open when the request never comes, or after `cancel`. */
  readonly happened: Promise<void>
  /** How often it has happened so far. */
  readonly count: number
  /** Lets everything pass from now on. */
  cancel(): void
}

/** The rule's state: which connections have had their request. */
export class ArmedFault implements Fault {
  readonly happened: Promise<void>
  readonly #rule: CutRule
  readonly #when: "before" | "after"
  readonly #disarm: () => void
  readonly #waiting = new Set<ProxiedConnection>()
  #resolve: () => void = () => {}
  #count = 0

  constructor(rule: CutRule, when: "before" | "after", disarm: () => void) {
    this.#rule = rule
    this.#when = when
    this.#disarm = disarm
    this.happened = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  get count(): number {
    return this.#count
  }

  cancel(): void {
    this.#disarm()
  }

  /** What is to become of a chunk; `undefined` when this fault has no word in it. */
  judge({ direction, bytes }: Chunk, connection: ProxiedConnection): Verdict | undefined {
    if (direction === "toServer") {
      if (this.#rule.request?.(bytes) ?? true) this.#waiting.add(connection)
      return undefined
    }
    if (!this.#waiting.has(connection) || !(this.#rule.reply?.(bytes) ?? true)) return undefined
    this.#count++
    if (this.#count >= (this.#rule.times ?? 1)) {
      this.#disarm()
      this.#resolve()
    }
    const how = this.#rule.how === "reset" ? "reset" : "cut"
    return this.#when === "before" ? how : { passThen: how }
  }

  forget(connection: ProxiedConnection): void {
    this.#waiting.delete(connection)
  }
}
