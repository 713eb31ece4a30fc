import { MillraceError } from "@millrace/contract"
import type { RegisteredSchema, SchemaInit } from "@millrace/core"

export const subjects: readonly string[] = ["orders", "payments"]

/** How many schemas there are: those of even numbers get on with all before them, the odd ones demand a field that nothing before has. */
export const schemaCount = 12

/** The schema of a number. */
export function schemaOf(number: number): SchemaInit {
  const given = { name: `n${number}`, type: "string" }
  const field = isDemanding(number) ? given : { ...given, default: "" }
  const fields = [{ name: "id", type: "string" }, field]
  return { type: "avro", schema: JSON.stringify({ type: "record", name: "R", fields }) }
}

function isDemanding(number: number): boolean {
  return number % 2 === 1
}

/** One request to make a schema a version of a subject. */
export interface Registration {
  readonly subject: string
  readonly number: number
  readonly force: boolean
  /** Nobody knows yet, or what was told. */
  told: "nothing" | "done" | "rejected" | "unknown"
}

/** What programs have asked of the registry and what they were told, held against one another and against what there is at the end. */
export class SchemaBook {
  readonly registrations: Registration[] = []
  readonly #violate: (invariant: string, text: string) => void
  readonly #ids = new Map<number, number>()
  readonly #lists = new Map<string, readonly number[]>()

  constructor(violate: (invariant: string, text: string) => void) {
    this.#violate = violate
  }

  /** Somebody is told the id of a schema. */
  id(number: number, id: number): void {
    const known = this.#ids.get(number)
    if (known !== undefined && known !== id) {
      this.#violate("one id for each schema", `schema ${number} has the ids ${known} and ${id}`)
    }
    for (const [other, taken] of this.#ids) {
      if (taken === id && other !== number)
        this.#violate("one schema for each id", `${id} is of ${other} and ${number}`)
    }
    this.#ids.set(number, id)
  }

  /** A registry answers with the schema of an id. */
  schema({ id, schema }: RegisteredSchema): void {
    const number = Array.from({ length: schemaCount }, (_, n) => n).find((n) => schemaOf(n).schema === schema)
    if (number === undefined) this.#violate("a schema comes back as it was given", `id ${id} is ${schema}`)
    else this.id(number, id)
  }

  /** The versions of a subject, by their ids, as somebody sees them: they only ever grow. @param before What was done when it was asked for. */
  versions(subject: string, ids: readonly number[], before: readonly Registration[]): void {
    const known = this.#lists.get(subject) ?? []
    const [longer, shorter] = known.length > ids.length ? [known, ids] : [ids, known]
    if (shorter.some((id, index) => longer[index] !== id)) {
      this.#violate("versions stay", `${subject} had ${known.join(" ")}, and has ${ids.join(" ")}`)
    }
    if (new Set(ids).size < ids.length) this.#violate("a schema is one version", `${subject} has ${ids.join(" ")}`)
    for (const { number } of before) {
      const id = this.#ids.get(number)
      if (id === undefined || ids.includes(id)) continue
      this.#violate("what was registered is there", `schema ${number} (${id}) is none of ${subject}: ${ids.join(" ")}`)
    }
    this.#lists.set(subject, longer)
  }

  /** Registrations of the subject that were told to be done. */
  done(subject: string): readonly Registration[] {
    return this.registrations.filter((one) => one.subject === subject && one.told === "done")
  }

  told(registration: Registration, error: unknown): void {
    if (error === undefined) registration.told = "done"
    else registration.told = error instanceof MillraceError && error.outcome === "rejected" ? "rejected" : "unknown"
  }

  /** What there is in the end was asked for by somebody who was not told that it was rejected, and gets on with what was before. */
  check(subject: string, ids: readonly number[]): void {
    const numbers = new Map([...this.#ids].map(([number, id]) => [id, number]))
    for (const [index, id] of ids.entries()) {
      const number = numbers.get(id)
      const asked = this.registrations.filter((one) => one.subject === subject && one.number === number)
      if (asked.every(({ told }) => told === "rejected")) {
        this.#violate(
          "what was rejected is not there",
          `version ${index + 1} of ${subject} is schema ${number} (${id})`,
        )
      }
      if (number === undefined || index === 0 || !isDemanding(number) || asked.some(({ force }) => force)) continue
      this.#violate("a version gets on with the one before", `version ${index + 1} of ${subject} is schema ${number}`)
    }
  }
}
