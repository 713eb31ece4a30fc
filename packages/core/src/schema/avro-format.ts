import { InvalidError } from "@millrace/contract"
import { Avro } from "../codec/avro.ts"
import { type AvscType, avscType } from "../codec/avro-library.ts"
import { avroIncompatibilities } from "./avro-compatibility.ts"
import type { AvroType } from "./avro-type.ts"
import type { FormatCodec, ResolvedSchema, SchemaFormat } from "./schema-format.ts"

/** Avro: named types of references come first, and what another schema wrote is resolved to the reader's. */
export const avroFormat: SchemaFormat = {
  contentType: "avro",
  check: (schema) => void codecOf(schema),
  incompatibilities: (reader, writer) => avroIncompatibilities(typeOf(reader), typeOf(writer)),
  codec: (schema): FormatCodec => {
    const codec = codecOf(schema)
    return {
      encode: (value) => codec.encode(value),
      decode: (payload) => codec.decode(payload),
      reads: (writer) => ({ decode: codec.reads(codecOf(writer)) }),
    }
  },
}

function codecOf({ schema, dependencies }: ResolvedSchema): Avro<unknown> {
  return new Avro(schema, { references: dependencies.map((dependency) => dependency.schema) })
}

/** The schema as the library has it. */
function typeOf({ schema, dependencies }: ResolvedSchema): AvroType {
  const registry: Record<string, AvscType> = {}
  try {
    for (const dependency of dependencies) avscType(JSON.parse(dependency.schema), registry)
    return avscType(JSON.parse(schema), registry) as unknown as AvroType
  } catch (cause) {
    if (!(cause instanceof Error) || "kind" in cause) throw cause
    throw new InvalidError(`the Avro schema does not parse: ${cause.message}`, { cause })
  }
}
