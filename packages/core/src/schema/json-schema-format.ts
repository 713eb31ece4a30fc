import { JsonSchema } from "../codec/json-schema.ts"
import { jsonIncompatibilities } from "./json-compatibility.ts"
import { JsonDocument } from "./json-document.ts"
import type { FormatCodec, ResolvedSchema, SchemaFormat } from "./schema-format.ts"

/** JSON Schema: a value is checked by the schema it is read with, whichever schema wrote it. */
export const jsonSchemaFormat: SchemaFormat = {
  contentType: "json",
  check: (schema) => void codecOf(schema),
  incompatibilities: (reader, writer) => jsonIncompatibilities(JsonDocument.open(reader), JsonDocument.open(writer)),
  codec: (schema): FormatCodec => {
    const codec = codecOf(schema)
    const decode = (payload: Uint8Array): unknown => codec.decode(payload)
    return { encode: (value) => codec.encode(value), decode, reads: () => ({ decode }) }
  },
}

function codecOf({ schema, dependencies }: ResolvedSchema): JsonSchema<unknown> {
  return new JsonSchema<unknown>(JSON.parse(schema), {
    references: dependencies.map((dependency) => ({ name: dependency.name, schema: JSON.parse(dependency.schema) })),
  })
}
