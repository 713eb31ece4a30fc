/** What each keyword of a JSON Schema asks, and whether the writer's schemas make sure of it. */
import { checkItems } from "./json-arrays.ts"
import type { Judge } from "./json-compatibility.ts"
import { type JsonDocument, pathBelow } from "./json-document.ts"
import { checkProperties } from "./json-objects.ts"
import { kinds, plainEqual, text, typeList, typesOf, valuesOf } from "./json-values.ts"
import type { Reason } from "./schema-format.ts"

/** One of the schemas that hold together, without `$ref` and `allOf`. */
export interface Conjunct {
  readonly schema: Readonly<Record<string, unknown>>
  readonly document: JsonDocument
}

/** One keyword of the reader, and all that the writer's values are known to fulfil. */
export interface KeywordCheck {
  readonly reader: Conjunct
  readonly writers: readonly Conjunct[]
  /** Of the schema that has the keyword. */
  readonly path: string
  readonly judge: Judge
}

/** Which types a keyword asks something of; of values of others it asks nothing. */
const concerns: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"].map((key) => [key, "number"]),
  ),
  ...Object.fromEntries(["minLength", "maxLength", "pattern", "format"].map((key) => [key, "string"])),
  ...Object.fromEntries(
    [
      "items",
      "prefixItems",
      "additionalItems",
      "minItems",
      "maxItems",
      "uniqueItems",
      "contains",
      "minContains",
      "maxContains",
    ].map((key) => [key, "array"]),
  ),
  ...Object.fromEntries(
    [
      "properties",
      "patternProperties",
      "additionalProperties",
      "required",
      "minProperties",
      "maxProperties",
      "propertyNames",
      "dependentRequired",
    ].map((key) => [key, "object"]),
  ),
}

/** Why the writer's values may break the keyword; empty when they cannot. */
export function checkKeyword(keyword: string, check: KeywordCheck): Reason[] {
  const { reader, writers, path, judge } = check
  const concerned = concerns[keyword]
  if (concerned !== undefined && !kinds(typesOf(writers)).has(concerned)) return []
  if (writers.some(({ schema }) => asksTheSame(keyword, reader.schema, schema))) return []
  switch (keyword) {
    case "type":
      return checkType(check)
    case "enum":
    case "const":
      return checkValues(check)
    case "properties":
    case "patternProperties":
    case "additionalProperties":
    case "required":
      return checkProperties(keyword, check)
    case "items":
    case "prefixItems":
    case "additionalItems":
      return checkItems(keyword, check)
    case "not":
      return refuse(
        !writers.some(
          (writer) =>
            writer.schema.not !== undefined &&
            judge.judge(placed(writer, "not"), placed(reader, "not"), "").length === 0,
        ),
        { path, keyword, message: "it cannot be judged whether the writer may write what is excluded" },
      )
    case "propertyNames":
      return writers.some(
        (writer) =>
          writer.schema[keyword] !== undefined &&
          judge.judge(placed(reader, keyword), placed(writer, keyword), "").length === 0,
      )
        ? []
        : [{ path: pathBelow(path, keyword), message: "the writer may use other names" }]
    case "multipleOf":
      return refuse(!writers.some(({ schema }) => isMultiple(schema, reader.schema[keyword])), {
        path,
        keyword,
        message: `the writer may write what is no multiple of ${String(reader.schema[keyword])}`,
      })
    case "uniqueItems":
      return refuse(reader.schema[keyword] === true && !writers.some(({ schema }) => Number(schema.maxItems) <= 1), {
        path,
        keyword,
        message: "the writer may repeat items",
      })
    default:
      return Object.hasOwn(bounds, keyword) ? checkBound(keyword, check) : unjudged(keyword, check)
  }
}

/** Limits, with the keywords of a writer that may keep within them: whether below or above. */
const bounds: Readonly<Record<string, "least" | "most">> = {
  minimum: "least",
  exclusiveMinimum: "least",
  minLength: "least",
  minItems: "least",
  minProperties: "least",
  maximum: "most",
  exclusiveMaximum: "most",
  maxLength: "most",
  maxItems: "most",
  maxProperties: "most",
}

const counted = ["contains", "minContains", "maxContains"]
const conditional = ["if", "then", "else"]

/** Keywords that say something definite only together. */
const together: ReadonlyMap<string, readonly string[]> = new Map([
  ["additionalProperties", ["additionalProperties", "properties", "patternProperties"]],
  ["items", ["items", "prefixItems", "additionalItems"]],
  ["additionalItems", ["items", "additionalItems"]],
  ...[counted, conditional].flatMap((group) => group.map((keyword): [string, string[]] => [keyword, group])),
])

/** Keywords that depend on all that stands around them. */
const entangled = ["unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "$ref"]

function asksTheSame(
  keyword: string,
  reader: Readonly<Record<string, unknown>>,
  writer: Readonly<Record<string, unknown>>,
): boolean {
  if (entangled.includes(keyword) || !Object.hasOwn(writer, keyword)) return false
  return (together.get(keyword) ?? [keyword]).every((key) => plainEqual(reader[key], writer[key]))
}

function checkType({ reader, writers, path }: KeywordCheck): Reason[] {
  const allowed = typeList(reader.schema.type)
  const missing = [...typesOf(writers)].filter(
    (type) => !allowed.includes(type) && !(type === "integer" && allowed.includes("number")),
  )
  return refuse(missing.length > 0, {
    path,
    keyword: "type",
    message: `the writer may write ${missing.join(", ")}, and the reader takes ${allowed.join(", ") || "nothing"}`,
  })
}

function checkValues({ reader, writers, path }: KeywordCheck): Reason[] {
  const allowed = new Set(valuesOf(reader.schema)?.map(text))
  const keyword = reader.schema.enum === undefined ? "const" : "enum"
  const written = writers.map(({ schema }) => valuesOf(schema)).filter((values) => values !== undefined)
  if (written.length === 0) return [{ path: pathBelow(path, keyword), message: "the writer may write other values" }]
  const missing = written.map((values) => values.map(text).filter((value) => !allowed.has(value)))
  const fewest = missing.reduce((a, b) => (a.length <= b.length ? a : b))
  return refuse(fewest.length > 0, { path, keyword, message: `the writer may write ${fewest.join(", ")}` })
}

function checkBound(keyword: string, { reader, writers, path }: KeywordCheck): Reason[] {
  const limit = reader.schema[keyword]
  if (typeof limit !== "number") return unjudged(keyword, { reader, writers, path })
  const within = writers.some(({ schema }) => bounded(keyword, limit, schema))
  return refuse(!within && !(limit === 0 && keyword.startsWith("min") && keyword !== "minimum"), {
    path,
    keyword,
    message: `the writer may go ${bounds[keyword] === "least" ? "below" : "above"} ${limit}`,
  })
}

function bounded(keyword: string, limit: number, schema: Readonly<Record<string, unknown>>): boolean {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, required } = schema as Readonly<
    Record<string, number | undefined>
  >
  switch (keyword) {
    case "minimum":
      return Number(minimum) >= limit || Number(exclusiveMinimum) >= limit
    case "exclusiveMinimum":
      return Number(minimum) > limit || Number(exclusiveMinimum) >= limit
    case "maximum":
      return Number(maximum) <= limit || Number(exclusiveMaximum) <= limit
    case "exclusiveMaximum":
      return Number(maximum) < limit || Number(exclusiveMaximum) <= limit
    case "minProperties":
      return Number(schema[keyword]) >= limit || (Array.isArray(required) && new Set(required).size >= limit)
    default:
      return bounds[keyword] === "least" ? Number(schema[keyword]) >= limit : Number(schema[keyword]) <= limit
  }
}

function unjudged(keyword: string, { path }: Pick<KeywordCheck, "reader" | "writers" | "path">): Reason[] {
  return [{ path: pathBelow(path, keyword), message: "the keyword is not the writer's, so it cannot be judged" }]
}

function isMultiple(schema: Readonly<Record<string, unknown>>, of: unknown): boolean {
  if (of === 1 && schema.type === "integer") return true
  const own = schema.multipleOf
  return (
    typeof own === "number" && typeof of === "number" && Number.isInteger(own) && Number.isInteger(of) && own % of === 0
  )
}

/** A schema within another, under its keyword. */
function placed(
  { schema, document }: Conjunct,
  keyword: string,
): { readonly schema: never; readonly document: JsonDocument } {
  return { schema: schema[keyword] as never, document }
}

function refuse(
  refused: boolean,
  { path, keyword, message }: { readonly path: string; readonly keyword: string; readonly message: string },
): Reason[] {
  return refused ? [{ path: pathBelow(path, keyword), message }] : []
}
