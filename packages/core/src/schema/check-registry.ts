import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { SchemaRegistry } from "./schema.ts"

const methods: readonly (keyof SchemaRegistry)[] = [
  "register",
  "get",
  "list",
  "subjects",
  "versions",
  "version",
  "find",
  "check",
  "compatibility",
  "setCompatibility",
]

/** @throws InvalidError for anything but a schema registry */
export function checkRegistry(owner: string, registry: unknown): SchemaRegistry {
  const given = Object(registry) as Partial<Record<keyof SchemaRegistry, unknown>>
  const framed = given.framing === "header" || given.framing === "confluent"
  if (framed && methods.every((method) => typeof given[method] === "function")) return registry as SchemaRegistry
  throw new InvalidError(
    `${owner}: option "schemas" is ${shown(registry)}; it must be a schema registry, such as confluentRegistry(url)`,
  )
}
