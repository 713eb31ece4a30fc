/**
 * Takes the facts of the messages in use out of Kafka's own definitions, for a new release of Kafka. These lie in the jar of the Java
 * client: `unzip kafka-clients-4.4.0.jar 'common/message/*' -d /somewhere`, then
 * `node take-facts.ts /somewhere/common/message 4.4.0 > messages.jsonl`.
 *
 * Names, types, versions and defaults are taken; none of the texts.
 */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import process from "node:process"

const apis = [
  "Produce",
  "Fetch",
  "ListOffsets",
  "Metadata",
  "OffsetCommit",
  "OffsetFetch",
  "OffsetDelete",
  "FindCoordinator",
  "JoinGroup",
  "Heartbeat",
  "LeaveGroup",
  "SyncGroup",
  "DescribeGroups",
  "DeleteGroups",
  "ApiVersions",
  "CreateTopics",
  "DeleteTopics",
  "CreatePartitions",
  "DeleteRecords",
  "DescribeConfigs",
  "IncrementalAlterConfigs",
  "InitProducerId",
  "ConsumerGroupHeartbeat",
  "ConsumerGroupDescribe",
]
const names = [
  ...apis.flatMap((api) => [`${api}Request`, `${api}Response`]),
  "ConsumerProtocolSubscription",
  "ConsumerProtocolAssignment",
]
const fieldKeys = [
  "name",
  "type",
  "versions",
  "nullableVersions",
  "taggedVersions",
  "tag",
  "default",
  "ignorable",
] as const

interface Definition extends Readonly<Record<string, unknown>> {
  readonly fields?: readonly Definition[]
  readonly commonStructs?: readonly Definition[]
}

const [folder, release] = process.argv.slice(2)
if (folder === undefined || release === undefined) {
  process.stderr.write("usage: node take-facts.ts <folder of the definitions> <release of Kafka>\n")
  process.exitCode = 2
} else {
  const source = `Apache Kafka ${release}, message definitions of the clients: names, types, versions, defaults`
  process.stdout.write(`${JSON.stringify({ source })}\n`)
  for (const name of names) process.stdout.write(`${JSON.stringify(message(definition(folder, name)))}\n`)
}

/** The definitions are JSON with comments, each on lines of its own. */
function definition(from: string, name: string): Definition {
  const text = readFileSync(join(from, `${name}.json`), "utf8")
  return JSON.parse(text.replace(/^\s*\/\/.*$/gm, "")) as Definition
}

function message(full: Definition): object {
  const { name, apiKey, type, validVersions, flexibleVersions, latestVersionUnstable, commonStructs } = full
  return {
    name,
    ...(apiKey === undefined ? {} : { apiKey }),
    type,
    validVersions,
    flexibleVersions,
    ...(latestVersionUnstable === true ? { latestVersionUnstable } : {}),
    fields: (full.fields ?? []).map(field),
    ...(commonStructs === undefined || commonStructs.length === 0
      ? {}
      : {
          commonStructs: commonStructs.map((struct) => ({
            name: struct.name,
            fields: (struct.fields ?? []).map(field),
          })),
        }),
  }
}

function field(full: Definition): object {
  const kept: Record<string, unknown> = {}
  for (const key of fieldKeys) {
    const value = full[key]
    if (value === undefined || (key === "ignorable" && value !== true)) continue
    kept[key] = key === "default" ? String(value) : value
  }
  return full.fields === undefined ? kept : { ...kept, fields: full.fields.map(field) }
}
