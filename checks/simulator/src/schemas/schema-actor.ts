import { MillraceError } from "@millrace/contract"
import type { RegisteredSchema } from "@millrace/core"
import type { Calls } from "../sim-calls.ts"
import type { SimProgram } from "../sim-program.ts"
import { type Registration, type SchemaBook, schemaCount, schemaOf, subjects } from "./schema-book.ts"

/** What the actors of one simulation share. */
export interface SchemaStage {
  readonly book: SchemaBook
  readonly calls: Calls
  readonly note: (program: SimProgram, text: string) => void
}

/** One program that registers schemas and looks at what others have registered. */
export class SchemaActor {
  readonly program: SimProgram
  readonly stage: SchemaStage
  isOver = false

  constructor(program: SimProgram, stage: SchemaStage) {
    this.program = program
    this.stage = stage
  }

  /** Some calls, one after the other or several at a time. It never rejects with a typed error. */
  async live(): Promise<void> {
    const { chance } = this.program
    for (let times = chance.between(1, 8); times > 0 && !this.isOver && this.program.isAlive; times--) {
      const calls = Array.from({ length: chance.of([1, 1, 3]) }, () => this.#act())
      await Promise.all(calls)
      await this.program.sleep(chance.below(chance.of([2, 200])))
    }
    this.isOver = true
  }

  async end(timeoutMs: number): Promise<void> {
    const { program, stage } = this
    this.isOver = true
    await stage.calls.attempt(program, "close", () => program.client.close({ timeoutMs }))
    program.kill()
  }

  #act(): Promise<unknown> {
    const { chance } = this.program
    const subject = chance.of(subjects)
    return chance.weighted<() => Promise<unknown>>([
      [5, () => this.register(subject, chance.below(schemaCount), chance.happens(0.3))],
      [1, () => this.#registerAlone(chance.below(schemaCount))],
      [2, () => this.look(subject)],
      [1, () => this.#list()],
    ])()
  }

  /** Makes it a version of the subject. @returns whether it is one */
  async register(subject: string, number: number, force: boolean): Promise<boolean> {
    const { book, note } = this.stage
    const registration: Registration = { subject, number, force, told: "nothing" }
    book.registrations.push(registration)
    const what = `register ${number} for ${subject}${force ? ", forced" : ""}`
    const answer = await this.#ask(what, () =>
      this.program.client.schemas.register(subject, schemaOf(number), { force }),
    )
    book.told(registration, answer.error)
    note(this.program, `${what}: ${answer.value ?? registration.told}`)
    if (answer.value !== undefined) book.id(number, answer.value)
    return answer.error === undefined
  }

  /** What versions there are. @returns whether that was told */
  async look(subject: string): Promise<readonly number[] | undefined> {
    const { book, note } = this.stage
    const before = book.done(subject)
    const { value } = await this.#ask(`versions of ${subject}`, () => this.program.client.schemas.versions(subject))
    if (value === undefined) return undefined
    for (const [index, one] of value.entries()) {
      book.schema(one)
      if (one.version !== index + 1) note(this.program, `version ${one.version} at ${index + 1}`)
    }
    const ids = value.map(({ id }) => id)
    note(this.program, `versions of ${subject}: ${ids.join(" ")}`)
    book.versions(subject, ids, before)
    return ids
  }

  async #registerAlone(number: number): Promise<void> {
    const { value } = await this.#ask(`register ${number}`, () =>
      this.program.client.schemas.register(schemaOf(number)),
    )
    if (value === undefined) return
    this.stage.book.id(number, value)
    // It can be read from now on.
    const { value: schema } = await this.#ask(`get ${value}`, () => this.program.client.schemas.get(value))
    if (schema !== undefined) this.stage.book.schema(schema)
  }

  async #list(): Promise<void> {
    const { value } = await this.#ask<readonly RegisteredSchema[]>("list", () => this.program.client.schemas.list())
    for (const schema of value ?? []) this.stage.book.schema(schema)
  }

  async #ask<T>(what: string, call: () => Promise<T>): Promise<{ readonly value?: T; readonly error?: MillraceError }> {
    try {
      return { value: await this.stage.calls.follow(this.program, what, call()) }
    } catch (error) {
      if (error instanceof MillraceError) return { error }
      throw error
    }
  }
}
