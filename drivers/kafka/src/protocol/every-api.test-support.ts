import type { Api } from "./api.ts"
import * as apis from "./api.ts"
import { codecOf } from "./api.ts"
import type { Struct } from "./codec.ts"
import { Writer } from "./writer.ts"

/** All APIs that Millrace speaks. */
export function everyApi(): Api<object, object>[] {
  return Object.values(apis as Readonly<Record<string, unknown>>).filter(
    (value) => typeof value === "object" && value !== null && "encode" in value,
  ) as Api<object, object>[]
}

/** The body of an answer behind the header of its version: tagged fields from the first flexible version on, but never for ApiVersions. */
export function answerFrame(
  api: Api<object, object>,
  version: number,
  body: { readonly message: Struct; readonly correlationId: number; readonly tags?: Uint8Array },
): Buffer {
  const { flexible } = api.response
  const writer = new Writer()
  writer.int32(body.correlationId)
  if (api.name !== "ApiVersions" && flexible !== undefined && version >= flexible) {
    writer.raw(body.tags ?? Uint8Array.of(0))
  }
  codecOf(api.response, version).write(writer, body.message)
  return Buffer.concat(writer.chunks())
}
