/**
 * Writes the TypeScript of Kafka's messages to standard output: `node generate.ts messages.jsonl > ../src/protocol/messages.generated.ts`.
 *
 * The facts come one message a line, with the keys of Kafka's own definitions (`common/message/*.json` in the kafka-clients jar). The
 * first line names their source.
 */
import { readFileSync } from "node:fs"
import process from "node:process"

interface FieldFacts {
  readonly name: string
  readonly type: string
  readonly versions: string
  readonly nullableVersions?: string
  readonly taggedVersions?: string
  readonly tag?: number
  readonly default?: string
  readonly ignorable?: boolean
  readonly fields?: readonly FieldFacts[]
}

interface MessageFacts {
  readonly name: string
  readonly apiKey?: number
  readonly type: "request" | "response" | "data"
  readonly validVersions: string
  readonly flexibleVersions: string
  readonly latestVersionUnstable?: boolean
  readonly fields: readonly FieldFacts[]
  readonly commonStructs?: readonly { readonly name: string; readonly fields: readonly FieldFacts[] }[]
}

type Range = readonly [first: number, last: number]

const scalars: Readonly<Record<string, string>> = {
  bool: "boolean",
  int8: "number",
  int16: "number",
  int32: "number",
  int64: "bigint",
  uuid: "string",
  string: "string",
  bytes: "Uint8Array",
  records: "Uint8Array",
}

/** Names of the interfaces so far. */
const written = new Set<string>()

class MessageWriter {
  readonly #message: MessageFacts
  readonly #versions: Range
  readonly #interfaces: string[] = []
  readonly #structs = new Set<string>()

  constructor(message: MessageFacts) {
    this.#message = message
    const [first, last] = rangeOf(message.validVersions, Number.NaN)
    this.#versions = [first, message.latestVersionUnstable === true ? last - 1 : last]
  }

  text(): string {
    const { name, apiKey, fields } = this.#message
    this.#interface(name, fields, `${name}, versions ${this.#versions.join(" to ")}.`)
    return `${this.#interfaces.join("\n")}
export const ${lowerFirst(name)}Schema: MessageSchema = {
  name: "${name}", key: ${apiKey ?? -1}, versions: [${this.#versions.join(", ")}],${this.#flexible()}
  fields: [
${this.#table(fields, "    ")}
  ],
}
`
  }

  #flexible(): string {
    const { flexibleVersions } = this.#message
    return flexibleVersions === "none" ? "" : ` flexible: ${rangeOf(flexibleVersions, 0)[0]},`
  }

  /** Fields that no version of ours has are left out. */
  #known(fields: readonly FieldFacts[]): readonly FieldFacts[] {
    return fields.filter((field) => field.versions !== "none" && this.#range(field.versions) !== undefined)
  }

  #interface(name: string, fields: readonly FieldFacts[], about?: string): void {
    if (written.has(name)) throw new Error(`two structs are called ${name}`)
    written.add(name)
    const lines = this.#known(fields).map((field) => `  ${this.#member(field)}`)
    const docs = about === undefined ? "" : `/** ${about} */\n`
    this.#interfaces.push(`${docs}export interface ${name} {\n${lines.join("\n")}\n}\n`)
    for (const field of this.#known(fields)) {
      const struct = structName(field)
      if (struct === undefined || this.#structs.has(struct)) continue
      this.#structs.add(struct)
      this.#interface(this.#qualified(struct), this.#fieldsOf(field))
    }
  }

  /** A request may leave out what has a default or is not in all versions; a response tells everything. */
  #member(field: FieldFacts): string {
    const [element, array] = elementOf(field)
    const struct = structName(field)
    const one = struct === undefined ? (scalars[element] as string) : this.#qualified(struct)
    const type = array ? `readonly ${one}[]` : one
    const nullable = field.nullableVersions !== undefined && this.#range(field.nullableVersions) !== undefined
    const [first, last] = this.#range(field.versions) as Range
    const everywhere = first === this.#versions[0] && last === this.#versions[1] && field.taggedVersions === undefined
    const optional = this.#message.type !== "response" && (field.default !== undefined || !everywhere)
    return `readonly ${lowerFirst(field.name)}${optional ? "?" : ""}: ${type}${nullable ? " | null" : ""}${optional ? " | undefined" : ""}`
  }

  #table(fields: readonly FieldFacts[], indent: string): string {
    return this.#known(fields)
      .map((field) => {
        const [element, array] = elementOf(field)
        const struct = structName(field) !== undefined
        const facts = [`name: "${lowerFirst(field.name)}"`, `type: "${struct ? "struct" : element}"`]
        if (array) facts.push("array: true")
        facts.push(`versions: [${(this.#range(field.versions) as Range).join(", ")}]`)
        const nullable = field.nullableVersions === undefined ? undefined : this.#range(field.nullableVersions)
        if (nullable !== undefined) facts.push(`nullable: [${nullable.join(", ")}]`)
        const tagged = field.taggedVersions === undefined ? undefined : this.#range(field.taggedVersions)
        if (tagged !== undefined) facts.push(`tagged: [${tagged.join(", ")}], tag: ${field.tag}`)
        if (field.default !== undefined) facts.push(`initial: ${initialOf(field.default, array ? "array" : element)}`)
        if (field.ignorable === true) facts.push("ignorable: true")
        if (!struct) return `${indent}{ ${facts.join(", ")} },`
        return `${indent}{ ${facts.join(", ")}, fields: [\n${this.#table(this.#fieldsOf(field), `${indent}  `)}\n${indent}] },`
      })
      .join("\n")
  }

  #fieldsOf(field: FieldFacts): readonly FieldFacts[] {
    if (field.fields !== undefined) return field.fields
    const name = structName(field)
    const common = this.#message.commonStructs?.find((struct) => struct.name === name)
    if (common === undefined) throw new Error(`${this.#message.name}: no struct ${name}`)
    return common.fields
  }

  /** Struct names repeat among messages: those that do not begin with the name of their API get their message's name. */
  #qualified(struct: string): string {
    const { name } = this.#message
    return struct.startsWith(name.replace(/(Request|Response)$/, "")) ? struct : `${name}${struct}`
  }

  /** The versions of the message in which a range of its field applies. */
  #range(text: string): Range | undefined {
    if (text === "none") return undefined
    const [first, last] = rangeOf(text, this.#versions[1])
    const cut: Range = [Math.max(first, this.#versions[0]), Math.min(last, this.#versions[1])]
    return cut[0] > cut[1] ? undefined : cut
  }
}

function rangeOf(text: string, end: number): Range {
  const match = /^(\d+)(?:(\+)|-(\d+))?$/.exec(text)
  if (match === null) throw new Error(`${text} is no range of versions`)
  const first = Number(match[1])
  if (match[2] !== undefined) return [first, end]
  return [first, match[3] === undefined ? first : Number(match[3])]
}

function elementOf(field: FieldFacts): readonly [element: string, array: boolean] {
  const array = field.type.startsWith("[]")
  return [array ? field.type.slice(2) : field.type, array]
}

function structName(field: FieldFacts): string | undefined {
  const [element] = elementOf(field)
  if (element in scalars) return undefined
  if (!/^[A-Z]/.test(element)) throw new Error(`${field.name}: type ${element} is not known`)
  return element
}

function initialOf(text: string, type: string): string {
  if (text === "null") return "null"
  if (type === "string") return JSON.stringify(text)
  if (type === "bool") return String(text === "true")
  if (type === "int64") return `${BigInt(text)}n`
  return String(Number(text))
}

function lowerFirst(name: string): string {
  return name.charAt(0).toLowerCase() + name.slice(1)
}

const [source, ...messages] = readFileSync(process.argv[2] ?? "messages.jsonl", "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line) as unknown) as [{ readonly source: string }, ...MessageFacts[]]

const parts = [
  `/**
 * Generated by tools/generate.ts from tools/messages.jsonl. Do not edit.
 * Source of the facts: ${source.source}.
 *
 * 64-bit numbers are bigint, UUIDs text as Kafka prints them (base64url). A field that its version lacks has its initial value.
 */
// biome-ignore-all format: generated
import type { MessageSchema } from "./schema.ts"
`,
  ...messages.map((message) => new MessageWriter(message).text()),
]
process.stdout.write(parts.join("\n"))
