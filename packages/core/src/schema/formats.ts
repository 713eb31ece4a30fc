import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import { avroFormat } from "./avro-format.ts"
import { jsonSchemaFormat } from "./json-schema-format.ts"
import { protobufFormat } from "./protobuf-format.ts"
import type { SchemaType } from "./schema.ts"
import type { SchemaFormat } from "./schema-format.ts"

const formats: Readonly<Record<SchemaType, SchemaFormat>> = {
  avro: avroFormat,
  "json-schema": jsonSchemaFormat,
  protobuf: protobufFormat,
}

/**
 * The format of a type of schema.
 * @throws InvalidError for a type that this version does not know, as a later one may have stored it
 */
export function formatOf(type: SchemaType): SchemaFormat {
  if (Object.hasOwn(formats, type)) return formats[type]
  throw new InvalidError(`this version of Millrace does not know the schema type ${shown(type)}`)
}
