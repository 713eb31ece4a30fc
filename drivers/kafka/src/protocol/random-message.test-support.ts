/** Random messages of any schema and version, with every field of the version and nothing that it cannot express. */
import { type Random, seededRandom } from "@millrace/runtime"
import type { Struct } from "./codec.ts"
import type { FieldSchema, MessageSchema, Versions } from "./schema.ts"

const letters = ["a", "-", "Z", "é", "水", "😀", "\0", " "]

/** The same message for the same seed. */
export function randomMessage(schema: MessageSchema, version: number, seed: number): Struct {
  return struct(schema.fields, version, seededRandom(seed))
}

function struct(fields: readonly FieldSchema[], version: number, random: Random): Struct {
  const made: Struct = {}
  for (const field of fields) {
    if (!within(field.versions, version)) continue
    // Now and then a tagged field is left out, which is another form on the wire.
    if (within(field.tagged, version) && pick(random, 3) === 0) continue
    made[field.name] = value(field, version, random)
  }
  return made
}

function value(field: FieldSchema, version: number, random: Random): unknown {
  if (within(field.nullable, version) && pick(random, 4) === 0) return null
  if (field.array !== true) return element(field, version, random)
  return Array.from({ length: pick(random, 4) }, () => element(field, version, random))
}

function element(field: FieldSchema, version: number, random: Random): unknown {
  switch (field.type) {
    case "bool":
      return pick(random, 2) === 1
    case "int8":
      return (random.uint32() << 24) >> 24
    case "int16":
      return (random.uint32() << 16) >> 16
    case "int32":
      return random.uint32() | 0
    case "int64":
      return BigInt.asIntN(64, (BigInt(random.uint32()) << 32n) | BigInt(random.uint32()))
    case "uuid":
      return Buffer.from(Uint32Array.of(...four(random)).buffer).toString("base64url")
    case "string":
      return Array.from({ length: pick(random, pick(random, 9) === 0 ? 200 : 9) }, () => letters[pick(random, 8)]).join(
        "",
      )
    case "bytes":
    case "records":
      return Uint8Array.from({ length: pick(random, pick(random, 9) === 0 ? 4000 : 20) }, () => pick(random, 256))
    case "struct":
      return struct(field.fields ?? [], version, random)
  }
}

function four(random: Random): number[] {
  return [random.uint32(), random.uint32(), random.uint32(), random.uint32()]
}

function pick(random: Random, count: number): number {
  return random.uint32() % count
}

function within(versions: Versions | undefined, version: number): boolean {
  return versions !== undefined && version >= versions[0] && version <= versions[1]
}
