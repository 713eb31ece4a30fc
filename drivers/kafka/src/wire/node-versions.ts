/** What a broker offers, as its answer to ApiVersions says, and which version a request may therefore have. */
import { UnsupportedError } from "@millrace/contract"
import type { ApiVersionsResponse } from "../protocol/messages.generated.ts"

/** What a codec says of itself, as far as versions go. */
export interface VersionRange {
  readonly key: number
  readonly name: string
  readonly min: number
  readonly max: number
}

/** Bounds of the caller: what it understands, and what it needs. */
export interface VersionBounds {
  readonly maxVersion?: number
  readonly minVersion?: number
}

export class NodeVersions {
  /** By API key, minimum × 65,536 + maximum: one lookup a request and no object. */
  readonly #ranges: ReadonlyMap<number, number>
  readonly #features: ReadonlyMap<string, number>
  readonly #server: string

  /** @param server How messages call the broker: `Kafka broker 1 at host:9092`. */
  constructor(server: string, answer: Pick<ApiVersionsResponse, "apiKeys" | "finalizedFeatures">) {
    this.#server = server
    this.#ranges = new Map(answer.apiKeys.map((api) => [api.apiKey, api.minVersion * 0x10000 + api.maxVersion]))
    this.#features = new Map(answer.finalizedFeatures.map((feature) => [feature.name, feature.maxVersionLevel]))
  }

  /** The level that the whole cluster has agreed on; 0 where there is none. */
  feature(name: string): number {
    return this.#features.get(name) ?? 0
  }

  /** Whether there is a version that both sides know, within the bounds. */
  offers(api: VersionRange, bounds: VersionBounds = {}): boolean {
    return this.#common(api, bounds) !== undefined
  }

  /** The newest version that both sides know, within the bounds. @throws UnsupportedError naming both ranges */
  version(api: VersionRange, bounds: VersionBounds = {}): number {
    const common = this.#common(api, bounds)
    if (common !== undefined) return common
    const range = this.#ranges.get(api.key)
    const theirs = range === undefined ? "does not offer it" : `offers versions ${range >>> 16} to ${range & 0xffff}`
    const ours = `${Math.max(api.min, bounds.minVersion ?? 0)} to ${Math.min(api.max, bounds.maxVersion ?? api.max)}`
    const [age, remedy] =
      range !== undefined && range >>> 16 > api.max ? ["too new", "update Millrace"] : ["too old", "update the broker"]
    throw new UnsupportedError(
      `${this.#server} is ${age} for the request ${api.name}: it ${theirs}, versions ${ours} are needed. What helps: ${remedy}.`,
      { context: { api: api.name } },
    )
  }

  #common(api: VersionRange, bounds: VersionBounds): number | undefined {
    const range = this.#ranges.get(api.key)
    if (range === undefined) return undefined
    const lowest = Math.max(api.min, range >>> 16, bounds.minVersion ?? 0)
    const highest = Math.min(api.max, range & 0xffff, bounds.maxVersion ?? api.max)
    return highest >= lowest ? highest : undefined
  }
}
