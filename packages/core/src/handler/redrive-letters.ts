import {
  CancelledError,
  DecodeError,
  InvalidError,
  MillraceError,
  type TopicName,
  type TopicPartition,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { checkName, topicText } from "../client/names.ts"
import { OptionReader, shown } from "../client/options.ts"
import type { Cursor } from "../cursor/cursor.ts"
import { openCursor } from "../cursor/log-cursor.ts"
import type { Encryptor, RecordOpener } from "../encryption/encryptor.ts"
import { positioned } from "../encryption/positioned.ts"
import { checkEncryptorChoice, openerOf } from "../encryption/sealing.ts"
import type { TopicRef } from "../producer/producer.ts"
import { resendBatch } from "../producer/publish.ts"
import type { Message } from "../record/message.ts"
import type { OutgoingRecord } from "../record/outgoing-record.ts"
import { type DeadLetterBlock, deadLetterBlock, idOfText } from "./dead-letter-record.ts"

/** Options of `redrive`. */
export interface RedriveOptions {
  /** Where all of them go. Default: each to the topic and partition that it came from. */
  readonly to?: TopicRef
  /** The most that are sent. Default: all that are there when it begins. */
  readonly limit?: number
  /**
   * Which are sent, by true or false. What it does not want is passed over, also by the next `redrive` under the same name. Default: all.
   */
  readonly filter?: (letter: DeadLetter) => boolean
  /** The consumer name under which progress is stored, for each partition of the dead-letter topic. Default `"millrace-redrive"`. */
  readonly name?: string
  /** Begins at the first dead letter that is there, whatever was sent before. Default false. */
  readonly again?: boolean
  /** What dead letters are decrypted with, and encrypted with for the topic that they go to; `false` for neither. Default: the client's. */
  readonly encryptor?: Encryptor | false
  /** Ends with CancelledError between two sends. */
  readonly signal?: AbortSignal
}

/** A dead letter as `redrive` sees it: the block of headers, decoded, and what the record holds. */
export interface DeadLetter extends DeadLetterBlock {
  readonly payload: Uint8Array | null
  readonly key: Uint8Array | null
}

/** What `redrive` did with the records that it read. */
export interface RedriveResult {
  /** Were sent, and are confirmed. */
  readonly sent: number
  /** The filter did not want them. */
  readonly unwanted: number
  /** Hold no bytes to send: what failed could not be read at all. They stay where they are. */
  readonly empty: number
  /** Are no dead letters. */
  readonly foreign: number
}

/** Records of one send. */
const pageLength = 100

/**
 * `redrive`, for a topic by name and the client that it is of.
 * @throws as `redrive`
 */
export async function redriveLetters(
  context: ClientContext,
  topic: TopicName,
  options: RedriveOptions | undefined,
): Promise<RedriveResult> {
  return await new Redrive(context, topic, settingsOf(context, topic, options)).run()
}

interface Settings {
  readonly to: TopicName | undefined
  readonly limit: number
  readonly filter: ((letter: DeadLetter) => boolean) | undefined
  readonly name: string
  readonly again: boolean
  readonly encryptor: Encryptor | false | undefined
  readonly signal: AbortSignal | undefined
}

const redriveKeys = ["to", "limit", "filter", "name", "again", "encryptor", "signal"] as const

function settingsOf(
  context: ClientContext,
  { stream, topic }: TopicName,
  options: RedriveOptions | undefined,
): Settings {
  const owner = `redrive of topic "${topicText({ stream, topic })}"`
  const reader = new OptionReader<RedriveOptions>(owner, options, redriveKeys)
  const { to, signal } = options ?? {}
  if (to !== undefined && (typeof to?.stream !== "string" || typeof to.name !== "string")) {
    throw new InvalidError(`${owner}: option "to" is ${shown(to)}; it must be a topic handle`)
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new InvalidError(`${owner}: option "signal" is ${shown(signal)}; it must be an AbortSignal`)
  }
  const { limits } = context.session.manifest
  return {
    to: to === undefined ? undefined : { stream: to.stream, topic: checkName("topic", to.name, limits) },
    limit: reader.whole("limit", { min: 1, fallback: Number.POSITIVE_INFINITY }),
    filter: reader.callback("filter"),
    name: checkName("consumer", options?.name ?? "millrace-redrive", limits),
    again: reader.flag("again", false),
    encryptor: checkEncryptorChoice(owner, options?.encryptor),
    signal,
  }
}

/** How far each partition of the dead-letter topic is dealt with. */
type Progress = Map<number, { readonly offset: bigint; readonly lineage: string }>

/** Records that go to one topic, with the same encryption. */
interface Parcel {
  readonly to: TopicName
  /** They are encrypted already. */
  readonly stored: boolean
  readonly records: OutgoingRecord[]
  /** What is dealt with once it is sent. */
  readonly progress: Progress
}

/** One call of `redrive`. */
class Redrive {
  readonly #context: ClientContext
  readonly #topic: TopicName
  readonly #settings: Settings
  readonly #opener: RecordOpener | undefined
  #parcels: Parcel[] = []
  /** Records that were read since the last store, and what to store for them. */
  #held = 0
  #progress: Progress = new Map()
  #counts = { sent: 0, unwanted: 0, empty: 0, foreign: 0 }
  /** Counted in `sent` once it is. */
  #waiting = 0

  constructor(context: ClientContext, topic: TopicName, settings: Settings) {
    this.#context = context
    this.#topic = topic
    this.#settings = settings
    this.#opener = openerOf(context, settings.encryptor)
  }

  async run(): Promise<RedriveResult> {
    const ends = await this.#ends()
    // As they are stored: some of them are encrypted for the topic that they came from.
    const cursor = await openCursor(this.#context, this.#topic, { encryptor: false })
    try {
      if (!this.#settings.again) cursor.restore(await this.#stored(ends))
      await this.#send(cursor, ends)
    } finally {
      await cursor[Symbol.asyncDispose]()
    }
    return this.#counts
  }

  async #send(cursor: Cursor<Message>, ends: ReadonlyMap<number, bigint>): Promise<void> {
    const { limit, signal } = this.#settings
    const open = new Set([...ends].filter(([, end]) => end > 0n).map(([partition]) => partition))
    while (open.size > 0 && this.#counts.sent + this.#waiting < limit) {
      if (signal?.aborted) throw new CancelledError("redrive: the signal fired", { cause: signal.reason })
      const result = await cursor.next()
      if (result.kind === "end") break
      if (result.kind === "error") throw result.error
      const { message } = result
      const { partition, offset } = message.position
      // What came after the beginning is the next call's.
      if (offset >= (ends.get(partition) ?? 0n)) {
        open.delete(partition)
        continue
      }
      this.#take(message)
      if (this.#held >= pageLength) await this.#flush()
    }
    await this.#flush()
  }

  #take(message: Message): void {
    const { partition, offset } = message.position
    const letter = this.#opened(message)
    this.#held++
    this.#progress.set(partition, { offset: offset + 1n, lineage: message.checkpoint().lineage })
    if (letter === undefined) this.#counts.foreign++
    else if (letter.content === "none") this.#counts.empty++
    else if (this.#wants(letter)) this.#pack(letter, message)
    else this.#counts.unwanted++
  }

  #wants(letter: DeadLetter): boolean {
    const { filter } = this.#settings
    if (filter === undefined) return true
    const answer: unknown = filter(letter)
    if (typeof answer === "boolean") return answer
    throw new InvalidError(
      `redrive of topic "${topicText(this.#topic)}": the filter answered ${shown(answer)}; it must be true or false`,
    )
  }

  #pack(letter: DeadLetter, message: Message): void {
    const to = this.#settings.to ?? letter.origin
    const stored = letter.content === "stored"
    const last = this.#parcels.at(-1)
    const fits = last?.to.topic === to.topic && last.to.stream === to.stream && last.stored === stored
    const parcel: Parcel = fits ? last : { to, stored, records: [], progress: new Map() }
    if (!fits) this.#parcels.push(parcel)
    const { partition, offset } = message.position
    const { lineage } = message.checkpoint()
    const key = letter.key
    parcel.progress.set(partition, { offset: offset + 1n, lineage })
    parcel.records.push({
      payload: letter.payload,
      ...(key === null || key.length === 0 ? {} : { key }),
      ...(this.#settings.to === undefined ? { partition: letter.partition } : {}),
      headers: letter.headers,
      id: idOfText(`redrive\n${topicText(this.#topic)}\n${lineage}\n${partition}\n${offset}\n${this.#settings.name}`),
    })
    this.#waiting++
  }

  /** Sends what was packed, then stores how far that is; where a send fails, how far those before it were. */
  async #flush(): Promise<void> {
    const sent: Progress = new Map()
    try {
      for (const parcel of this.#parcels) {
        await this.#ship(parcel)
        for (const [partition, position] of parcel.progress) sent.set(partition, position)
      }
    } catch (error) {
      // What the send failed with is what there is to tell: without this store what was sent is only sent again, under the same ids.
      await this.#store(sent).catch(() => {})
      throw error
    }
    const progress = this.#progress
    this.#parcels = []
    this.#held = 0
    this.#progress = new Map()
    await this.#store(progress)
  }

  async #ship({ to, stored, records }: Parcel): Promise<void> {
    const seal = stored ? false : this.#settings.encryptor
    const options = seal === undefined ? undefined : { encryptor: seal }
    await resendBatch(this.#context, to, { records: await this.#placed(to, records), options })
    this.#waiting -= records.length
    this.#counts.sent += records.length
  }

  async #store(progress: Progress): Promise<void> {
    if (progress.size === 0) return
    const entries = [...progress].map(([partition, position]) => ({ ...this.#topic, partition, ...position }))
    const outcomes = await this.#context.session.offsets.store(this.#owner, entries)
    for (const failure of outcomes) if (failure !== undefined) throw failure
  }

  /** The partitions that the topic had may be more than it has. */
  async #placed(to: TopicName, records: readonly OutgoingRecord[]): Promise<readonly OutgoingRecord[]> {
    if (this.#settings.to !== undefined) return records
    const { partitions } = await this.#context.topics.describe(to)
    return records.map((record) => {
      const { partition = 0, ...elsewhere } = record
      return partition < partitions.length ? record : elsewhere
    })
  }

  /** The dead letter that a record holds; absent when it holds none. @throws DecodeError with the position when it does not decrypt */
  #opened(message: Message): DeadLetter | undefined {
    const { headersError, key } = message
    if (headersError !== undefined) return undefined
    const { payload, headers } = message
    const plain = deadLetterBlock(headers)
    if (plain !== undefined) return { ...plain, payload, key }
    if (this.#opener === undefined) return undefined
    const content = this.#decrypted(message)
    if (content === undefined || content.headers instanceof DecodeError) return undefined
    const block = deadLetterBlock(content.headers)
    return block === undefined ? undefined : { ...block, payload: content.payload, key }
  }

  #decrypted(message: Message): ReturnType<RecordOpener["open"]> {
    try {
      return this.#opener?.open(this.#topic, { payload: message.payload, headers: () => message.headers })
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error
      throw positioned(error, { ...this.#topic, ...message.position })
    }
  }

  get #owner(): { readonly kind: "consumer"; readonly name: string } {
    return { kind: "consumer", name: this.#settings.name }
  }

  /** The end of each partition when it begins. */
  async #ends(): Promise<Map<number, bigint>> {
    const { topics, session } = this.#context
    const { partitions } = await topics.describe(this.#topic)
    const places = partitions.map((_, partition): TopicPartition => ({ ...this.#topic, partition }))
    const answers = await session.log.watermarks(places)
    return new Map(answers.map((answer, partition) => [partition, good(answer).end]))
  }

  async #stored(ends: ReadonlyMap<number, bigint>): Promise<Map<number, bigint>> {
    const places = [...ends.keys()].map((partition): TopicPartition => ({ ...this.#topic, partition }))
    const answers = await this.#context.session.offsets.load(this.#owner, places)
    const stored = new Map<number, bigint>()
    answers.forEach((answer, partition) => {
      if (answer !== undefined) stored.set(partition, good(answer).offset)
    })
    return stored
  }
}

function good<V>(answer: V | MillraceError): V {
  if (answer instanceof MillraceError) throw answer
  return answer
}
