import {
  type LogReader,
  PermissionError,
  type ReaderOptions,
  type Session,
  type TopicFilter,
  type TopicName,
} from "@millrace/contract"
import type { Clock } from "@millrace/runtime"
import { topicKey, topicText } from "../client/names.ts"
import { shown } from "../client/options.ts"
import type { RecordSource } from "../partition/record-source.ts"
import { BlockedReader } from "./blocked-reader.ts"
import { type FilterInForce, filterInForce, noFilter } from "./filter-in-force.ts"
import { filterTopic } from "./filter-log.ts"
import type { FilterFollower, FilterWatch } from "./filter-watch.ts"
import { openFilteredReader } from "./filtered-reader.ts"

/** What a group's consumer does when the filter of one of its topics is another one. */
export interface GroupRecordsHost extends Pick<FilterFollower, "failed"> {
  /** Readers that are opened from now on select otherwise in these topics. */
  reselected(topics: readonly TopicName[]): void
}

/** The records that a member of a group reads: what the group's filter selects of each topic. */
export class GroupRecords implements RecordSource {
  readonly #session: Session
  readonly #clock: Clock
  readonly #watch: FilterWatch
  readonly #group: string
  readonly #topics: readonly TopicName[]
  readonly #inForce = new Map<string, FilterInForce>()
  #unfollow: (() => void) | undefined

  constructor(
    context: { readonly session: Session; readonly clock: Clock; readonly filters: FilterWatch },
    { group, topics }: { readonly group: string; readonly topics: readonly TopicName[] },
  ) {
    this.#session = context.session
    this.#clock = context.clock
    this.#watch = context.filters
    this.#group = group
    this.#topics = topics
  }

  /** Finds out which filters there are. To be awaited before anything is read. @throws what keeps the filters from being read */
  async load(): Promise<void> {
    try {
      await this.#watch.log.refresh()
    } catch (error) {
      if (!(error instanceof PermissionError)) throw error
      const name = topicText(filterTopic)
      throw new PermissionError(
        `group ${shown(this.#group)}: the filters in topic "${name}" may not be read, so that it is not known what the group's consumers may get: allow describing and reading it, or open consumers with applyFilter: false (${error.message})`,
        { cause: error, context: error.context },
      )
    }
    this.#update()
  }

  /** Follows the filters until `close`. */
  follow(host: GroupRecordsHost): void {
    const changed = (): void => {
      const topics = this.#update()
      if (topics.length > 0) host.reselected(topics)
    }
    this.#unfollow ??= this.#watch.follow({ changed, failed: (error) => host.failed(error) })
    // What others have read since `load` was told to nobody here.
    changed()
  }

  /** Looks whether a filter has changed: the member that had the partitions may have known more. */
  gained(): void {
    if (this.#unfollow !== undefined) this.#watch.look()
  }

  close(): void {
    this.#unfollow?.()
    this.#unfollow = undefined
  }

  get holes(): boolean {
    if (this.#session.manifest.read.holes) return true
    for (const inForce of this.#inForce.values()) if (inForce.kind === "selects") return true
    return false
  }

  openReader(options: ReaderOptions): LogReader {
    const filters: TopicFilter[] = []
    const blocked = new Map<string, FilterInForce & { kind: "blocked" }>()
    for (const { stream, topic } of this.#topics) {
      const key = topicKey({ stream, topic })
      const inForce = this.#inForce.get(key) ?? noFilter
      if (inForce.kind === "selects") filters.push({ stream, topic, filter: inForce.filter })
      if (inForce.kind === "blocked") blocked.set(key, inForce)
    }
    const reader = openFilteredReader(
      this.#session,
      filters.length === 0 ? options : { ...options, filters },
      this.#clock,
    )
    return blocked.size === 0 ? reader : new BlockedReader(reader, (name) => blocked.get(topicKey(name))?.error)
  }

  /** @returns the topics whose selection is another one now */
  #update(): TopicName[] {
    return this.#topics.filter(({ stream, topic }) => {
      const group = { stream, topic, group: this.#group }
      const next = filterInForce(group, this.#watch.log.view(group))
      const key = topicKey({ stream, topic })
      const changed = (this.#inForce.get(key) ?? noFilter).key !== next.key
      this.#inForce.set(key, next)
      return changed
    })
  }
}
