/** The options that a `kafka:` URL may carry. */
import { type ConnectTarget, InvalidError, type OptionKind, UnsupportedError } from "@millrace/contract"
import type { CodecName } from "./compression/codecs.ts"
import { defaultFetchSettings, type FetchSettings } from "./fetch/settings.ts"
import type { GroupProtocolChoice } from "./groups/group-coordinator.ts"

/** Kafka's own port. */
const defaultPort = 9092

/** Names and kinds, as `Driver.options` tells them. */
export const kafkaOptions: Readonly<Record<string, OptionKind>> = {
  /** The name of this client in the broker's log files, quotas and metrics. Default `millrace`. */
  clientId: "text",
  /** How long one request may take, waiting for a connection included. Default 30 s. */
  requestTimeout: "duration",
  /** What batches are compressed with: none (default), gzip, snappy, lz4 or zstd. */
  compression: "text",
  /** How old what is known of a topic may be before it is asked for again. Default 5 min. */
  metadataAge: "duration",
  /** The most that one fetch asks a broker for. Default 50 MiB. */
  fetchMaxBytes: "size",
  /** The most that one fetch asks of one partition. Default 1 MiB. */
  partitionFetchBytes: "size",
  /** How long a broker may keep a fetch that it has nothing for. Default 500 ms. */
  fetchMaxWait: "duration",
  /** How members of groups take part: auto (default: KIP-848 where the cluster offers it), consumer (only so) or classic. */
  groupProtocol: "text",
}

export interface KafkaSettings {
  readonly bootstrap: readonly { readonly host: string; readonly port: number }[]
  readonly clientId: string
  readonly requestTimeoutMs: number
  readonly compression: CodecName
  readonly metadataAgeMs: number
  readonly fetch: FetchSettings
  readonly groupProtocol: GroupProtocolChoice
}

const codecs: readonly CodecName[] = ["none", "gzip", "snappy", "lz4", "zstd"]
const groupProtocols: readonly GroupProtocolChoice[] = ["auto", "consumer", "classic"]

/** The limits of durations and sizes: what the protocol's fields hold. */
const longestMs = 0x7fff_ffff
const largestBytes = 0x7fff_ffff

/** @throws InvalidError for values out of range; UnsupportedError for a user or a password */
export function kafkaSettings(target: ConnectTarget): KafkaSettings {
  if (target.username !== undefined || target.password !== undefined) {
    throw new UnsupportedError(
      "the Kafka driver does not log in yet (SASL): leave user and password out of the URL, and use a listener with the protocol PLAINTEXT",
    )
  }
  if (target.path !== "" && target.path !== "/") {
    throw new InvalidError(`a kafka: URL has no path, and this one has ${JSON.stringify(target.path)}`)
  }
  if (target.hosts.length === 0) throw new InvalidError("a kafka: URL names at least one broker: kafka://host:9092")
  const { options } = target
  const within = (name: string, fallback: number, range: readonly [least: number, most: number]): number => {
    const value = options[name] ?? fallback
    if (typeof value !== "number" || value < range[0] || value > range[1]) {
      throw new InvalidError(`option ${name} is ${String(value)}: ${range[0]} to ${range[1]} are allowed`)
    }
    return Math.floor(value)
  }
  return {
    bootstrap: target.hosts.map(({ host, port }) => ({ host, port: port ?? defaultPort })),
    clientId: String(options.clientId ?? "millrace"),
    requestTimeoutMs: within("requestTimeout", 30_000, [1, longestMs]),
    compression: oneOf(codecs, "compression", options.compression ?? "none"),
    metadataAgeMs: within("metadataAge", 300_000, [1, longestMs]),
    fetch: {
      fetchMaxBytes: within("fetchMaxBytes", defaultFetchSettings.fetchMaxBytes, [1, largestBytes]),
      partitionFetchBytes: within("partitionFetchBytes", defaultFetchSettings.partitionFetchBytes, [1, largestBytes]),
      fetchMaxWaitMs: within("fetchMaxWait", defaultFetchSettings.fetchMaxWaitMs, [0, longestMs]),
    },
    groupProtocol: oneOf(groupProtocols, "groupProtocol", options.groupProtocol ?? "auto"),
  }
}

function oneOf<T extends string>(allowed: readonly T[], option: string, value: unknown): T {
  const found = allowed.find((name) => name === value)
  if (found !== undefined) return found
  throw new InvalidError(`option ${option} is ${JSON.stringify(value)}: ${allowed.join(", ")} are allowed`)
}
