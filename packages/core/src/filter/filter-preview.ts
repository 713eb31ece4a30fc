/** What a filter would do, with records that are there or that somebody makes up. Nothing is joined, and nothing is stored. */
import {
  type CheckedFilter,
  compileFilter,
  DecodeError,
  type ExplainedNode,
  type Filter,
  type FilterProgram,
  type FilterVerdict,
  filterLimits,
  filterText,
  Headers,
  type HeadersInit,
  InvalidError,
  MillraceError,
  OffsetOutOfRangeError,
  type Watermarks,
} from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { readLogRange } from "../client/log-range.ts"
import { OptionReader, shown } from "../client/options.ts"
import { BatchMessage, type Message, type MessageSource } from "../record/message.ts"
import { checkPartitionNumber } from "../record/outgoing-record.ts"
import { filterDigest } from "./filter-binding.machine.ts"
import type { FilterGroup } from "./filter-event.ts"

/** Which filter is meant. */
export interface TestOptions {
  /** A definition that need not be stored. Default: the filter in force. */
  readonly filter?: Filter
  /** One of the group's own revisions, drafts too. Not together with `filter`. */
  readonly revision?: number
}

/** Options of `filter().preview` (table 1.13). */
export interface PreviewOptions extends TestOptions {
  /** Where to begin. Default: the first record that is there. One that is not retained any more begins at the first that is. */
  readonly fromOffset?: bigint
  /** How many records are looked at, from 1 to 10,000; fewer where patterns make them costly. Default 10,000. */
  readonly maxExamined?: number
  /** How many records are answered, from 1 to 100. Default 20. */
  readonly maxRecords?: number
  /** Answers every record that is looked at, selected or not, with what each part of the filter says of it. Default false. */
  readonly explain?: boolean
}

/** One record of a preview, as it is stored: what is encrypted stays so. */
export interface PreviewedRecord extends FilterVerdict {
  readonly message: Message
  /** With `explain`; absent where the record's headers do not decode. */
  readonly explanation?: ExplainedNode
}

/** What a filter would select of a run of records. */
export interface FilterPreview {
  /** Of the filter that was applied. */
  readonly digest: string
  readonly records: readonly PreviewedRecord[]
  /** Records that were looked at. */
  readonly examined: number
  readonly selected: number
  /** Records before which the policy `fault: "stop"` would stop a consumer. */
  readonly stopped: number
  /** Where a further preview goes on. */
  readonly nextOffset: bigint
  /** The end of the partition when the preview began. */
  readonly end: bigint
}

/** What a filter would do with a record, and why. */
export interface FilterTestResult extends FilterVerdict {
  readonly selected: boolean
  readonly explanation: ExplainedNode
}

const mostExamined = 10_000
const mostRecords = 100
const defaultRecords = 20

/** Work of patterns after which a preview answers what it has: it is done in one go, a second at the most. */
const mostWork = 4 * filterLimits.patternWork

/** What may be taken until a preview answers what it has, in ms. */
const timeoutMs = 30_000

/** Applies a filter to one record that somebody made up. @throws InvalidError for the payload or a header */
export function testFilter(
  what: string,
  record: {
    readonly payload: Uint8Array | null
    readonly headers: HeadersInit | undefined
    readonly filter: CheckedFilter
  },
): FilterTestResult {
  const { payload, filter } = record
  if (payload !== null && !(payload instanceof Uint8Array)) {
    throw new InvalidError(`${what}: a payload to test is a Uint8Array or null, not ${shown(payload)}`)
  }
  const headers = Headers.from(record.headers)
  const { root, ...verdict } = compileFilter(filter).explain({ payload, headers })
  return { ...verdict, selected: verdict.judgement === "selected", explanation: root }
}

/** Of whom, and with which filter: `choose` may ask the backend for it, once the options are known to be right. */
interface PreviewOf {
  readonly group: FilterGroup
  readonly partition: number
  readonly choose: () => Promise<CheckedFilter>
  readonly what: string
}

/** Applies a filter to records of one partition. @throws InvalidError, NotFoundError, OffsetOutOfRangeError, and what the backend says */
export async function previewFilter(
  context: ClientContext,
  of: PreviewOf,
  options: PreviewOptions | undefined,
): Promise<FilterPreview> {
  const limits = previewLimits(of, options)
  checkPartitionNumber(of.partition)
  const filter = await of.choose()
  const { stream, topic } = of.group
  const place = { stream, topic, partition: of.partition }
  const [marks] = await context.session.log.watermarks([place])
  if (marks instanceof MillraceError) throw marks
  const { first, end, lineage } = marks as Watermarks
  const from = limits.fromOffset === undefined || limits.fromOffset < first ? first : limits.fromOffset
  if (from > end) {
    throw new OffsetOutOfRangeError(
      `${of.what}: offset ${from} is behind the end ${end} of partition ${of.partition}`,
      {
        context: { ...place, offset: from, first, end },
      },
    )
  }
  const preview = new Preview(compileFilter(filter), { ...place, lineage, claim: undefined, end }, limits)
  const untilMs = context.clock.monotonicMs() + timeoutMs
  const enough = (): boolean => preview.full || context.clock.monotonicMs() >= untilMs
  const range = { from: { ...place, offset: from, lineage }, end, enough }
  const { next, error } = await readLogRange(context.session, range, (batch, index) => preview.look(batch, index))
  if (error !== undefined) throw error
  return preview.answer(filter, { next, end })
}

interface PreviewLimits {
  readonly fromOffset: bigint | undefined
  readonly maxExamined: number
  readonly maxRecords: number
  readonly explain: boolean
}

function previewLimits({ what }: PreviewOf, options: PreviewOptions | undefined): PreviewLimits {
  const keys = ["filter", "revision", "fromOffset", "maxExamined", "maxRecords", "explain"] as const
  const read = new OptionReader<PreviewOptions>(`preview with ${what}`, options, keys)
  const fromOffset = options?.fromOffset
  if (fromOffset !== undefined && (typeof fromOffset !== "bigint" || fromOffset < 0n)) {
    throw new InvalidError(
      `preview with ${what}: option "fromOffset" is ${shown(fromOffset)}; it must be a bigint from 0n`,
    )
  }
  return {
    fromOffset,
    maxExamined: read.whole("maxExamined", { min: 1, max: mostExamined, fallback: mostExamined }),
    maxRecords: read.whole("maxRecords", { min: 1, max: mostRecords, fallback: defaultRecords }),
    explain: read.flag("explain", false),
  }
}

/** Collects what a filter says of record after record, until there is enough. */
class Preview {
  readonly #program: FilterProgram
  readonly #place: Omit<MessageSource, "batch">
  readonly #limits: PreviewLimits
  readonly #records: PreviewedRecord[] = []
  #examined = 0
  #selected = 0
  #stopped = 0
  /** The offset behind the last record that was looked at. */
  #next: bigint | undefined

  constructor(program: FilterProgram, place: Omit<MessageSource, "batch">, limits: PreviewLimits) {
    this.#program = program
    this.#place = place
    this.#limits = limits
  }

  get full(): boolean {
    const { maxExamined, maxRecords } = this.#limits
    return this.#examined >= maxExamined || this.#records.length >= maxRecords || this.#program.patternWork >= mostWork
  }

  look(batch: MessageSource["batch"], index: number): void {
    const offset = batch.offset(index)
    if (this.full || offset >= this.#place.end) return
    this.#next = offset + 1n
    this.#examined++
    const verdict = this.#program.verdictAt(batch, index)
    if (verdict.judgement === "selected") this.#selected++
    if (verdict.judgement === "stopped") this.#stopped++
    if (verdict.judgement === "rejected" && !this.#limits.explain) return
    const message = new BatchMessage({ ...this.#place, batch }, index).copy()
    const explanation = this.#limits.explain ? this.#explained(batch, index) : undefined
    this.#records.push({ ...verdict, message, ...(explanation === undefined ? {} : { explanation }) })
  }

  /** @param read Where reading has come to: behind holes, and behind records that were not looked at any more. */
  answer(filter: CheckedFilter, read: { readonly next: bigint; readonly end: bigint }): FilterPreview {
    return {
      digest: filterDigest(filterText(filter)),
      records: this.#records,
      examined: this.#examined,
      selected: this.#selected,
      stopped: this.#stopped,
      nextOffset: this.full || read.next > read.end ? (this.#next ?? read.end) : read.next,
      end: read.end,
    }
  }

  #explained(batch: MessageSource["batch"], index: number): ExplainedNode | undefined {
    let headers: Headers
    try {
      headers = batch.headers(index)
    } catch (error) {
      if (error instanceof DecodeError) return undefined
      throw error
    }
    return this.#program.explain({ payload: batch.payload(index), headers }).root
  }
}
