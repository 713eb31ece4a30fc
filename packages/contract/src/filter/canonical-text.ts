/**
 * Plain data as JSON in one way only: keys in order, absent ones left out, whole numbers with all their digits.
 */
export function canonicalText(value: unknown): string {
  if (typeof value === "bigint") return value.toString()
  if (Array.isArray(value)) return `[${value.map(canonicalText).join()}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).filter(([, part]) => part !== undefined)
  entries.sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, part]) => `${JSON.stringify(key)}:${canonicalText(part)}`).join()}}`
}
