/** JSON texts whose layout does not matter, and the references of a schema. */
import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { SchemaReference } from "./schema.ts"

/** How many references one schema may have. */
const mostReferences = 1000

/** How deep a schema may be nested, so that whatever walks through it returns. */
const deepest = 500

/**
 * The text without layout, keys in order. Numbers that a double does not hold keep their digits.
 * @throws InvalidError for what is not JSON, or nested more than 500 deep
 */
export function jsonText(text: string): string {
  return JSON.stringify(ordered(parseJson(text), 0))
}

/**
 * What the text stands for; a number that a double does not hold is an object of `JSON.rawJSON`, which has its digits.
 * @throws InvalidError for what is not JSON
 */
function parseJson(text: string): unknown {
  try {
    return exact.parse(text, (_key, value, context) =>
      typeof value === "number" && String(value) !== context.source ? exact.rawJSON(context.source) : value,
    )
  } catch (cause) {
    throw new InvalidError(`the schema is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}

/** @throws InvalidError for anything but a list of a name, a subject and a version each, and for a name that comes twice */
export function checkReferences(references: readonly SchemaReference[] | undefined): readonly SchemaReference[] {
  if (references === undefined) return []
  if (!Array.isArray(references)) throw new InvalidError(`schema references are a list, not ${shown(references)}`)
  if (references.length > mostReferences) {
    throw new InvalidError(`a schema has at most ${mostReferences} references, not ${references.length}`)
  }
  const names = new Set<string>()
  return references.map((reference: SchemaReference, index) => {
    const { name, subject, version } = Object(reference) as SchemaReference
    const what = `schema reference #${index}`
    if (typeof name !== "string" || name === "") {
      throw new InvalidError(`${what}: "name" is ${shown(name)}; it must be a non-empty string`)
    }
    if (typeof subject !== "string" || subject === "") {
      throw new InvalidError(`${what}: "subject" is ${shown(subject)}; it must be a non-empty string`)
    }
    if (!Number.isInteger(version) || version < 1) {
      throw new InvalidError(`${what}: "version" is ${shown(version)}; it must be a whole number from 1`)
    }
    if (names.has(name)) throw new InvalidError(`${what}: the name ${shown(name)} is used twice`)
    names.add(name)
    return { name, subject, version }
  })
}

/** JSON with the source text of its numbers, which TypeScript's library does not describe yet (ECMAScript, "JSON.parse source text access"). */
const exact = JSON as unknown as {
  parse(text: string, reviver: (key: string, value: unknown, context: { readonly source: string }) => unknown): unknown
  rawJSON(text: string): object
  isRawJSON(value: unknown): boolean
}

function ordered(value: unknown, depth: number): unknown {
  if (typeof value !== "object" || value === null || exact.isRawJSON(value)) return value
  if (depth === deepest) throw new InvalidError(`the schema is nested more than ${deepest} deep`)
  if (Array.isArray(value)) return value.map((item) => ordered(item, depth + 1))
  const keys = Object.keys(value).sort()
  return Object.fromEntries(keys.map((key) => [key, ordered((value as Record<string, unknown>)[key], depth + 1)]))
}
