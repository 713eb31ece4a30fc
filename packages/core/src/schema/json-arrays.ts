/** Items of JSON arrays: first ones by their place, and all others, whichever draft says so. */
import { type JsonPlace, type JsonSchemaValue, pathBelow } from "./json-document.ts"
import type { Conjunct, KeywordCheck } from "./json-keywords.ts"
import type { Reason } from "./schema-format.ts"

/** Why the writer's arrays may break the keyword. */
export function checkItems(keyword: "items" | "prefixItems" | "additionalItems", check: KeywordCheck): Reason[] {
  const { reader, writers, path, judge } = check
  const own = pathBelow(path, keyword)
  const asked = itemsOf(reader)
  let found: Reason[] | undefined
  for (const writer of writers) {
    const written = itemsOf(writer)
    const most = Number(writer.schema.maxItems ?? Number.POSITIVE_INFINITY)
    const places = Math.max(asked.first.length, written.first.length)
    const reasons: Reason[] = []
    for (let index = 0; index < places && index < most; index++) {
      reasons.push(
        ...judge.judge(asked.first[index] ?? asked.rest, written.first[index] ?? written.rest, pathBelow(own, index)),
      )
    }
    if (most > places) reasons.push(...judge.judge(asked.rest, written.rest, own))
    if (reasons.length === 0) return []
    found ??= reasons
  }
  return found ?? []
}

function itemsOf({ schema, document }: Conjunct): { readonly first: readonly JsonPlace[]; readonly rest: JsonPlace } {
  const { items, prefixItems, additionalItems } = schema
  const placed = (part: unknown): JsonPlace => ({ schema: (part ?? true) as JsonSchemaValue, document })
  if (Array.isArray(items)) return { first: items.map(placed), rest: placed(additionalItems) }
  return { first: Array.isArray(prefixItems) ? prefixItems.map(placed) : [], rest: placed(items) }
}
