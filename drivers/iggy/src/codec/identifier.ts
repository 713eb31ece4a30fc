/** How requests name things, and whose progress they speak of (iggy-wire.md: Shared encodings). */
import { InvalidError } from "@millrace/contract"
import { type Codec, checkLength, join, struct, word } from "../wire/codec.ts"

/**
 * A number is the server's own id of a stream, topic, user or group; text is its name, even if it is made of digits. Numbers of
 * deleted streams and topics are given out again.
 */
export type Identifier = number | string

const numericKind = 1
const textKind = 2

export const identifier: Codec<Identifier> = {
  write(writer, value) {
    if (typeof value === "number") {
      writer.u8(numericKind)
      writer.u8(4)
      writer.u32(value)
      return
    }
    const bytes = Buffer.from(value, "utf8")
    checkLength("a name", bytes.length)
    writer.u8(textKind)
    writer.u8(bytes.length)
    writer.raw(bytes)
  },
  read(reader) {
    const kind = reader.u8()
    const length = reader.u8()
    if (kind === numericKind) return length === 4 ? reader.u32() : reader.fail(`has a numeric id of ${length} bytes`)
    if (kind !== textKind) return reader.fail(`has ${kind} for the kind of an identifier`)
    return length > 0 ? reader.text(length) : reader.fail("has an empty name")
  },
}

export interface StreamRef {
  readonly stream: Identifier
}
export interface TopicRef extends StreamRef {
  readonly topic: Identifier
}
export interface GroupRef extends TopicRef {
  readonly group: Identifier
}
export interface UserRef {
  readonly user: Identifier
}

export const streamRef: Codec<StreamRef> = struct<StreamRef>({ stream: identifier })
export const topicRef: Codec<TopicRef> = struct<TopicRef>({ stream: identifier, topic: identifier })
export const groupRef: Codec<GroupRef> = struct<GroupRef>({ stream: identifier, topic: identifier, group: identifier })
export const userRef: Codec<UserRef> = struct<UserRef>({ user: identifier })

/** A named consumer is stored under XXH32 of its name, so that two names can meet; a group under its own id. */
export interface Consumer {
  readonly kind: "consumer" | "group" | "externalGroup"
  readonly id: Identifier
}

/** `externalGroup` is known to wire 0.12 alone, for offsets. */
export const consumer: Codec<Consumer> = struct<Consumer>({
  kind: word({ consumer: 1, group: 2, externalGroup: 3 }, "the kind of a consumer"),
  id: identifier,
})

/** `undefined` for "not given". */
const optionalPartition: Codec<number | undefined> = {
  write(writer, value) {
    writer.u8(value === undefined ? 0 : 1)
    writer.u32(value ?? 0)
  },
  read(reader) {
    const given = reader.u8()
    const partition = reader.u32()
    if (given > 1) return reader.fail(`has ${given} for whether a partition is given`)
    return given === 1 ? partition : undefined
  },
}

/** A consumer on a topic, perhaps on one of its partitions. */
export interface ConsumerRef extends TopicRef {
  readonly consumer: Consumer
  readonly partition: number | undefined
}

export const consumerRef: Codec<ConsumerRef> = join(
  join(struct<{ readonly consumer: Consumer }>({ consumer }), topicRef),
  struct<{ readonly partition: number | undefined }>({ partition: optionalPartition }),
)

/** Where a message goes: the server's round robin, one partition, or XXH32 of a key modulo the partition count (iggy-wire.md: Batches). */
export type Partitioning =
  | { readonly kind: "balanced" }
  | { readonly kind: "partition"; readonly partition: number }
  | { readonly kind: "key"; readonly key: Uint8Array }

export const partitioning: Codec<Partitioning> = {
  write(writer, value) {
    if (value.kind === "balanced") writer.u16(1)
    else if (value.kind === "partition") {
      writer.u8(2)
      writer.u8(4)
      writer.u32(value.partition)
    } else {
      if (value.key.length < 1 || value.key.length > 255)
        throw new InvalidError(`a routing key has ${value.key.length} bytes: Apache Iggy takes 1 to 255`)
      writer.u8(3)
      writer.u8(value.key.length)
      writer.raw(value.key)
    }
  },
  read(reader) {
    const kind = reader.u8()
    const length = reader.u8()
    if (kind === 1 && length === 0) return { kind: "balanced" }
    if (kind === 2 && length === 4) return { kind: "partition", partition: reader.u32() }
    if (kind === 3 && length > 0) return { kind: "key", key: reader.raw(length) }
    return reader.fail(`has a partitioning of kind ${kind} with ${length} bytes`)
  },
}
