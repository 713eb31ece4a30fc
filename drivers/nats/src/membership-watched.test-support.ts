/** Members of a group under watch: in this process, or in one of their own that can be killed, stopped and blocked. */
import { type ChildProcess, fork } from "node:child_process"
import type { TestContext } from "node:test"
import type { Claim, Membership, Session } from "@millrace/contract"
import type { ChildNews, ChildRequest, ChildStart } from "./membership-process.child.ts"

/** Longer than this nothing takes unless it is stuck, in ms. */
const patienceMs = 30_000
const orders = { stream: "shop", topic: "orders" }

/** What a member has and was told, and a wait for it to come to something. */
export abstract class Watched {
  readonly told: string[] = []
  readonly held: Set<number> = new Set()
  end: string | undefined
  #checks = new Set<() => void>()

  /** Resolves when the condition holds, which is looked at after each change. */
  until(what: string, condition: () => boolean): Promise<void> {
    if (condition()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const patience = setTimeout(() => {
        this.#checks.delete(check)
        reject(
          new Error(
            `${what} did not come: holds ${[...this.held]}, was told ${this.told.join("; ")}, ended ${this.end}`,
          ),
        )
      }, patienceMs)
      const check = (): void => {
        if (!condition()) return
        clearTimeout(patience)
        this.#checks.delete(check)
        resolve()
      }
      this.#checks.add(check)
    })
  }

  holds(count: number): Promise<void> {
    return this.until(`a share of ${count}`, () => this.held.size === count)
  }

  protected take(change: Omit<ChildNews & { readonly type: "change" }, "type">): void {
    const { assigned, revoked, lost } = change
    const texts = [...lost.map((p) => `!${p}`), ...revoked.map((p) => `-${p}`), ...assigned.map((p) => `+${p}`)]
    this.told.push(texts.join(" "))
    for (const partition of [...revoked, ...lost]) this.held.delete(partition)
    for (const partition of assigned) {
      if (this.held.has(partition)) this.told.push(`partition ${partition} was assigned twice`)
      this.held.add(partition)
    }
    this.stirred()
  }

  protected stirred(): void {
    for (const check of [...this.#checks]) check()
  }
}

/** A member of `workers` in this process. */
export class Member extends Watched {
  readonly claims: Map<number, Claim> = new Map()
  readonly membership: Membership

  constructor(membership: Membership) {
    super()
    this.membership = membership
    void this.#listen()
  }

  static async join(session: Session, sessionTimeoutMs = 3_000): Promise<Member> {
    return new Member(await session.groups.join("workers", [orders], { sessionTimeoutMs, rebalanceTimeoutMs: 10_000 }))
  }

  async #listen(): Promise<void> {
    const numbers = (claims: readonly Claim[]): number[] => claims.map(({ partition }) => partition)
    try {
      for await (const { assigned, revoked, lost } of this.membership.changes) {
        for (const claim of assigned) this.claims.set(claim.partition, claim)
        this.take({ assigned: numbers(assigned), revoked: numbers(revoked), lost: numbers(lost) })
        if (revoked.length > 0) await this.membership.release(revoked).catch((error) => this.told.push(String(error)))
      }
      this.end = "done"
    } catch (error) {
      this.end = String((error as { kind?: string }).kind ?? error)
    }
    this.stirred()
  }
}

/** A member of `workers` in a process of its own, which ends with the test. */
export class Child extends Watched {
  readonly process: ChildProcess
  unblocked = false
  #committed: Extract<ChildNews, { readonly type: "committed" }>["outcomes"] | undefined

  constructor(t: TestContext, start: ChildStart) {
    super()
    const extension = import.meta.url.endsWith(".ts") ? "ts" : "js"
    this.process = fork(new URL(`./membership-process.child.${extension}`, import.meta.url), [JSON.stringify(start)], {
      execArgv: process.execArgv.filter((argument) => !argument.startsWith("--test")),
    })
    this.process.on("message", (news: ChildNews) => this.#hear(news))
    t.after(async () => {
      if (this.process.exitCode !== null || this.process.signalCode !== null) return
      this.process.kill("SIGKILL")
      await new Promise((resolve) => this.process.once("exit", resolve))
    })
  }

  ask(request: ChildRequest): void {
    this.process.send(request)
  }

  /** Commits under every claim that the child ever had. */
  async commit(offset: number): Promise<readonly { readonly partition: number; readonly outcome: string }[]> {
    this.#committed = undefined
    this.ask({ type: "commit", offset })
    await this.until("the outcome of the commit", () => this.#committed !== undefined)
    return this.#committed ?? []
  }

  #hear(news: ChildNews): void {
    if (news.type === "change") this.take(news)
    else if (news.type === "ended") this.end = news.kind
    else if (news.type === "committed") this.#committed = news.outcomes
    else this.unblocked = true
    this.stirred()
  }
}
