import type { Manifest } from "@millrace/contract"
import type { Encryptor } from "../encryption/encryptor.ts"
import { checkEncryptor } from "../encryption/sealing.ts"
import { checkRegistry } from "../schema/check-registry.ts"
import type { SchemaRegistry } from "../schema/schema.ts"
import { checkName } from "./names.ts"
import { OptionReader } from "./options.ts"

/** What a connection is told (table 1.14 of the options). */
export interface ClientOptions {
  /** The stream of `client.topic(name)`. Default: none. */
  readonly stream?: string
  /** How long one attempt to publish may take, in ms. Default 60,000. */
  readonly publishTimeoutMs?: number
  /** How often a publish is tried again. Default 3; 0: never. */
  readonly publishRetries?: number
  /** The wait before the first retry, in ms; doubled for each further one, at most 30 s. Default 250. */
  readonly publishRetryBackoffMs?: number
  /** What payloads and headers are encrypted and decrypted with, unless a producer or consumer says otherwise. Default: nothing. */
  readonly encryptor?: Encryptor
  /** Where `client.schemas` and `topic.schema(id)` find schemas, such as a `confluentRegistry`. Default: the backend's small state. */
  readonly schemas?: SchemaRegistry
}

/** Client options after the checks. */
export interface ClientSettings {
  readonly stream: string | undefined
  readonly encryptor: Encryptor | undefined
  readonly schemas: SchemaRegistry | undefined
  readonly publish: { readonly timeoutMs: number; readonly retries: number; readonly retryBackoffMs: number }
}

const known: readonly (keyof ClientOptions)[] = [
  "stream",
  "publishTimeoutMs",
  "publishRetries",
  "publishRetryBackoffMs",
  "encryptor",
  "schemas",
]

/** @throws InvalidError for unknown keys and values out of range */
export function checkClientOptions(options: ClientOptions | undefined, limits: Manifest["limits"]): ClientSettings {
  const read = new OptionReader<ClientOptions>("client", options, known)
  return {
    stream: options?.stream === undefined ? undefined : checkName("stream", options.stream, limits),
    encryptor: options?.encryptor === undefined ? undefined : checkEncryptor("client", options.encryptor),
    schemas: options?.schemas === undefined ? undefined : checkRegistry("client", options.schemas),
    publish: {
      timeoutMs: read.duration("publishTimeoutMs", { fallback: 60_000 }),
      retries: read.whole("publishRetries", { min: 0, fallback: 3 }),
      retryBackoffMs: read.duration("publishRetryBackoffMs", { fallback: 250 }),
    },
  }
}
