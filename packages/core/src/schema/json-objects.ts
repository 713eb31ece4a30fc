/** Properties of JSON objects: what the writer may write under each name, and what the reader asks of it. */

import { type JsonPlace, type JsonSchemaValue, pathBelow } from "./json-document.ts"
import type { Conjunct, KeywordCheck } from "./json-keywords.ts"
import type { Reason } from "./schema-format.ts"

/** Why the writer's objects may break the keyword. */
export function checkProperties(
  keyword: "properties" | "patternProperties" | "additionalProperties" | "required",
  check: KeywordCheck,
): Reason[] {
  switch (keyword) {
    case "properties":
      return Object.entries(parts(check.reader, keyword)).flatMap(([name, schema]) => checkNamed(name, schema, check))
    case "patternProperties":
      return Object.entries(parts(check.reader, keyword)).flatMap(([pattern, schema]) =>
        checkPattern(pattern, schema, check),
      )
    case "additionalProperties":
      return checkAdditional(check)
    case "required":
      return checkRequired(check)
  }
}

function checkNamed(name: string, schema: JsonSchemaValue, { reader, writers, path, judge }: KeywordCheck): Reason[] {
  const place = { schema, document: reader.document }
  const own = step(path, "properties", name)
  let found: Reason[] | undefined
  for (const writer of writers) {
    const written = writtenAt(name, writer)
    if (written.some((part) => part.schema === false)) return []
    for (const part of written) {
      const reasons = judge.judge(place, part, own)
      if (reasons.length === 0) return []
      found ??= reasons
    }
  }
  return found ?? open(judge.judge(place, { schema: true, document: reader.document }, own), own)
}

function open(reasons: Reason[], path: string): Reason[] {
  if (reasons.length === 0) return reasons
  return [
    {
      path,
      message:
        "the writer does not describe this property and allows others, so it may have written anything under this name",
    },
  ]
}

/** What the writer asks of a property, `false` where it writes none; empty when it asks nothing. */
function writtenAt(name: string, writer: Conjunct): JsonPlace[] {
  const { document } = writer
  const named = parts(writer, "properties")
  const found: JsonPlace[] = Object.hasOwn(named, name) ? [{ schema: named[name] as JsonSchemaValue, document }] : []
  for (const [pattern, schema] of Object.entries(parts(writer, "patternProperties"))) {
    if (matches(pattern, name) === true) found.push({ schema, document })
  }
  const { additionalProperties } = writer.schema
  if (found.length === 0 && additionalProperties !== undefined && unmatched(writer, name)) {
    found.push({ schema: additionalProperties as JsonSchemaValue, document })
  }
  return found
}

/** Whether no pattern fits for certain, so that the name is an additional one. */
function unmatched(writer: Conjunct, name: string): boolean {
  return Object.keys(parts(writer, "patternProperties")).every((pattern) => matches(pattern, name) === false)
}

function checkPattern(pattern: string, schema: JsonSchemaValue, check: KeywordCheck): Reason[] {
  const { reader, writers, path, judge } = check
  const own = step(path, "patternProperties", pattern)
  const place = { schema, document: reader.document }
  let found: Reason[] | undefined
  for (const writer of writers) {
    const reasons = writtenParts(writer)
      .filter(({ name }) => name === undefined || matches(pattern, name) !== false)
      .flatMap(({ part }) => judge.judge(place, part, own))
    if (reasons.length === 0) return []
    found ??= reasons
  }
  return found ?? []
}

function checkAdditional(check: KeywordCheck): Reason[] {
  const { reader, writers, path, judge } = check
  const own = pathBelow(path, "additionalProperties")
  const place = { schema: reader.schema.additionalProperties as JsonSchemaValue, document: reader.document }
  const patterns = Object.keys(parts(reader, "patternProperties"))
  const named = parts(reader, "properties")
  let found: Reason[] | undefined
  for (const writer of writers) {
    const reasons = writtenParts(writer)
      .filter(({ name, pattern }) =>
        name === undefined
          ? pattern === undefined || !patterns.includes(pattern)
          : !(Object.hasOwn(named, name) || patterns.some((known) => matches(known, name) === true)),
      )
      .flatMap(({ name, part }) => {
        const refused = judge.judge(place, part, own)
        if (refused.length === 0 || place.schema !== false) return refused
        const what =
          name === undefined ? "properties that the reader does not know" : `the property ${JSON.stringify(name)}`
        return [{ path: own, message: `the writer may write ${what}, and the reader allows no others` }]
      })
    if (reasons.length === 0) return []
    if (found === undefined || reasons.length < found.length) found = reasons
  }
  return found ?? []
}

/** All that the writer may write: under names, under patterns, and under any other name. */
function writtenParts(
  writer: Conjunct,
): { readonly name?: string; readonly pattern?: string; readonly part: JsonPlace }[] {
  const { document } = writer
  const { additionalProperties } = writer.schema
  const rest = (additionalProperties ?? true) as JsonSchemaValue
  return [
    ...Object.entries(parts(writer, "properties")).map(([name, schema]) => ({ name, part: { schema, document } })),
    ...Object.entries(parts(writer, "patternProperties")).map(([pattern, schema]) => ({
      pattern,
      part: { schema, document },
    })),
    { part: { schema: rest, document } },
  ]
}

function checkRequired({ reader, writers, path }: KeywordCheck): Reason[] {
  const sure = new Set(writers.flatMap(({ schema }) => (Array.isArray(schema.required) ? schema.required : [])))
  const asked = Array.isArray(reader.schema.required) ? (reader.schema.required as unknown[]) : []
  return asked
    .filter((name) => !sure.has(name))
    .map((name) => ({
      path: pathBelow(path, "required"),
      message: `the property ${JSON.stringify(name)} is required, and the writer may leave it out`,
    }))
}

function parts({ schema }: Conjunct, keyword: string): Readonly<Record<string, JsonSchemaValue>> {
  return Object(schema[keyword] ?? {}) as Record<string, JsonSchemaValue>
}

/** `undefined` for a pattern that is none. */
function matches(pattern: string, name: string): boolean | undefined {
  try {
    return new RegExp(pattern, "u").test(name)
  } catch {
    return undefined
  }
}

function step(path: string, keyword: string, name: string): string {
  return pathBelow(path, keyword, name.replaceAll("~", "~0").replaceAll("/", "~1"))
}
