import type { FeedLane, MessageFeed } from "../handler/message-feed.ts"
import type { BatchMessage } from "../record/message.ts"
import type { PageSettings } from "./group-reader-options.ts"
import type { MatchedPage } from "./page-ledger.ts"

/** A page that is ready to be handed out. */
export interface ReadyPage {
  readonly lane: FeedLane
  readonly page: MatchedPage
  readonly offsets: readonly bigint[]
}

/** Makes pages of the messages that a feed has: each of one partition, within the bounds of a page. */
export class PageCollector {
  readonly #feed: MessageFeed
  readonly #settings: PageSettings
  #ready: ReadyPage[] = []
  /** What the feed failed with behind the pages that are ready. */
  #failure: { readonly error: unknown; readonly lane: FeedLane | undefined } | undefined

  constructor(feed: MessageFeed, settings: PageSettings) {
    this.#feed = feed
    this.#settings = settings
  }

  /** The next page, when there is something. @throws what the feed does, behind the pages before it */
  next(): ReadyPage | undefined {
    if (this.#ready.length === 0 && this.#failure === undefined) this.#collect()
    const page = this.#ready.shift()
    if (page !== undefined) return page
    const failure = this.#failure
    this.#failure = undefined
    if (failure !== undefined) throw failure.error
    return undefined
  }

  /** Forgets what is ready of a partition, and its error. */
  drop(lane: FeedLane): void {
    if (this.#failure?.lane === lane) this.#failure = undefined
    this.#ready = this.#ready.filter((page) => page.lane !== lane)
  }

  /** Takes what the feed has, at most as many messages as a page may have. */
  #collect(): void {
    const open = new Map<FeedLane, OpenPage>()
    for (let taken = 0; taken < this.#settings.count; taken++) {
      let message: BatchMessage | undefined
      try {
        message = this.#feed.take()
      } catch (error) {
        this.#failure = { error, lane: this.#feed.lane }
        break
      }
      const lane = this.#feed.lane
      if (message === undefined || lane === undefined) break
      const page = open.get(lane)
      if (page?.add(message) === true) continue
      if (page !== undefined) this.#ready.push(page.closed())
      open.set(lane, new OpenPage(lane, message, this.#settings))
    }
    for (const page of open.values()) this.#ready.push(page.closed())
  }
}

class OpenPage {
  readonly #lane: FeedLane
  readonly #settings: PageSettings
  readonly #messages: BatchMessage[]
  readonly #offsets: bigint[]
  #bytes: number

  constructor(lane: FeedLane, first: BatchMessage, settings: PageSettings) {
    this.#lane = lane
    this.#settings = settings
    this.#messages = [first]
    this.#offsets = [first.position.offset]
    this.#bytes = sizeOf(first)
  }

  /** Answers false when the message would lead beyond the bounds of a page. */
  add(message: BatchMessage): boolean {
    const bytes = this.#bytes + sizeOf(message)
    const { offset } = message.position
    const span = Number(offset - (this.#offsets[0] as bigint)) + 1
    if (bytes > this.#settings.maxBytes || span > this.#settings.maxExamined) return false
    this.#messages.push(message)
    this.#offsets.push(offset)
    this.#bytes = bytes
    return true
  }

  closed(): ReadyPage {
    const { stream, topic, partition } = this.#lane.partition
    const page = { stream, topic, partition, messages: this.#messages }
    return { lane: this.#lane, page, offsets: this.#offsets }
  }
}

function sizeOf(message: BatchMessage): number {
  return (message.payload?.length ?? 0) + (message.key?.length ?? 0)
}
