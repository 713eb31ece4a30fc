import { InvalidError, type TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { shown } from "../client/options.ts"
import type { Encryptor } from "../encryption/encryptor.ts"
import type { Destination } from "../producer/lane.ts"
import { nameOf, type TopicRef } from "../producer/producer.ts"
import type { Route } from "../producer/routing.ts"
import { checkPayload, type OutgoingRecord, prepareRecord, type SendableRecord } from "../record/outgoing-record.ts"
import { describes, RecordEncoder, type TypedSendOptions } from "../typed/record-encoder.ts"
import { TypedTopic, typedParts } from "../typed/typed-topic.ts"

/**
 * What a handler of `process` answers for one record: a value (bytes, where the topic that it goes to is not typed), a record of bytes, or
 * what `output` makes of a value.
 */
export type ProcessOutput<O> = Output | (O extends Uint8Array ? O | OutgoingRecord : O)

/** What `output` may say of its record: where it goes, when not to the processor's `to`, and what any send may say. */
export interface OutputOptions extends TypedSendOptions {
  readonly topic?: TopicRef
}

/** A value with what is its record's own. Made by `output`. */
export class Output {
  readonly value: unknown
  readonly options: OutputOptions

  /** Made by `output`. */
  constructor(value: unknown, options: OutputOptions) {
    this.value = value
    this.options = options
  }
}

/**
 * For a handler of `process`: a value (bytes, where the topic is not typed) with a key, a partition, headers, or a topic of its own.
 * @param value `null` is a tombstone.
 */
export function output(value: unknown, options: OutputOptions = {}): Output {
  return new Output(value, options)
}

/** An output that is ready to be sent. */
export interface PreparedOutput {
  readonly record: SendableRecord
  readonly to: Destination
}

/** Makes records of what handlers answer. */
export class OutputEncoder {
  readonly #client: ClientContext
  readonly #encryptor: Encryptor | false | undefined
  readonly #route: Route
  readonly #to: Target | undefined
  readonly #targets = new Map<TopicRef, Target>()

  constructor(
    client: ClientContext,
    of: { readonly to: TopicRef | undefined; readonly route: Route; readonly encryptor: Encryptor | false | undefined },
  ) {
    this.#client = client
    this.#encryptor = of.encryptor
    this.#route = of.route
    this.#to = of.to === undefined ? undefined : this.#targetOf(of.to)
  }

  /** @throws InvalidError for what is no output, RecordTooLargeError */
  prepare(answer: unknown): PreparedOutput {
    const { limits } = this.#client.session.manifest
    if (answer instanceof Output) {
      const { topic, ...options } = answer.options
      const target = topic === undefined ? this.#target(answer) : this.#targetOf(topic)
      if (target.encoder !== undefined)
        return {
          record: this.#typed(target.encoder.record({ ...options, value: answer.value }), target.encoder),
          to: target.to,
        }
      return {
        record: prepareRecord({ ...options, payload: answer.value as Uint8Array | null }, limits),
        to: target.to,
      }
    }
    const target = this.#target(answer)
    if (target.encoder !== undefined) {
      if (answer === null)
        throw new InvalidError(
          "null is no output: a handler answers nothing with undefined, and a tombstone is output(null, { key })",
        )
      const record = target.encoder.bare(answer)
      return { record: record instanceof Uint8Array ? record : this.#typed(record, target.encoder), to: target.to }
    }
    if (answer instanceof Uint8Array) {
      checkPayload(answer, limits)
      return { record: answer, to: target.to }
    }
    if (typeof answer === "object" && answer !== null && "payload" in answer) {
      return { record: prepareRecord(answer as OutgoingRecord, limits), to: target.to }
    }
    throw new InvalidError(
      `${shown(answer)} is no output: a handler answers bytes, a record with a payload, what output() makes, an array of these, or nothing`,
    )
  }

  #typed(record: OutgoingRecord, { own }: RecordEncoder<unknown>): SendableRecord {
    return prepareRecord(record, this.#client.session.manifest.limits, { resend: false, own })
  }

  #target(answer: unknown): Target {
    if (this.#to !== undefined) return this.#to
    throw new InvalidError(
      `${shown(answer)} has no topic to go to: give process a topic in "to", or the output one of its own with output(value, { topic })`,
    )
  }

  #targetOf(topic: TopicRef): Target {
    let target = this.#targets.get(topic)
    if (target !== undefined) return target
    const name: TopicName = nameOf(topic, this.#client.session.manifest)
    target = { to: { name, route: this.#route }, encoder: this.#encoderOf(topic) }
    if (this.#targets.size < mostTargets) this.#targets.set(topic, target)
    return target
  }

  #encoderOf(topic: TopicRef): RecordEncoder<unknown> | undefined {
    if (!(topic instanceof TypedTopic)) return undefined
    // What its records say of themselves depends on whether an encryption has room for it.
    if (this.#encryptor === undefined) return typedParts(topic as TypedTopic<unknown>).encoder
    return new RecordEncoder(topic.codec, { describes: describes(this.#client, {}, this.#encryptor) })
  }
}

/** A topic that outputs go to. */
interface Target {
  readonly to: Destination
  readonly encoder: RecordEncoder<unknown> | undefined
}

/** Topic handles that are remembered; a handler may make one for each message. */
const mostTargets = 1000
