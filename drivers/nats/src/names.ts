/**
 * How topics and partitions are named in NATS. A partition is one JetStream stream on one subject:
 *
 *     subject      millrace.<stream>.<topic>.<partition>.<lineage>
 *     partition 0  millrace_<stream>_<topic>_0             fixed, so that only one creation of a topic can win
 *     the others   millrace_<stream>_<topic>_<n>_<lineage> so that creations at once never meet
 *
 * Names are escaped: letters, digits and `-` stay, every other byte of the UTF-8 text becomes `=` and two hexadecimal digits. Neither
 * `.` nor `_` is ever left, so that the parts of a name cannot run into each other.
 */
import { createHash } from "node:crypto"
import { DecodeError, InvalidError, type Lineage, type TopicName } from "@millrace/contract"

/** The first token of every subject that Millrace makes. */
const subjectRoot = "millrace"

/** The stream token of a topic without a stream. No escaped name is `_`. */
const noStream = "_"

/** The longest name that a JetStream server takes for a stream, in bytes; also what a directory's name may have. */
export const longestStreamName: number = 255

const plain = /^[A-Za-z0-9-]+$/

/** The escaped form of a name: one token of a subject, and a part of a JetStream name. Different names give different texts. */
export function escapeName(name: string): string {
  if (plain.test(name)) return name
  let text = ""
  for (const byte of Buffer.from(name, "utf8")) {
    const letter = String.fromCharCode(byte)
    text += plain.test(letter) ? letter : `=${byte.toString(16).padStart(2, "0")}`
  }
  return text
}

/** The name behind an escaped one. @internal @throws DecodeError for a text that `escapeName` does not make */
export function unescapeName(text: string): string {
  const bytes: number[] = []
  for (let at = 0; at < text.length; at++) {
    if (text[at] !== "=") {
      bytes.push(text.charCodeAt(at))
      continue
    }
    bytes.push(Number.parseInt(text.slice(at + 1, at + 3), 16))
    at += 2
  }
  const name = Buffer.from(bytes).toString("utf8")
  if (escapeName(name) !== text) throw new DecodeError(`${JSON.stringify(text)} is not an escaped name`)
  return name
}

/** The lineage of a topic that Millrace made; that of another stream is the time of its creation, which has other characters. */
export const ownLineage: RegExp = /^[0-9a-z]{14}$/

/** Where one partition lives. */
export interface PartitionPlace extends TopicName {
  readonly partition: number
  readonly lineage: Lineage
}

/**
 * The JetStream stream of a partition. Partition 0 of a topic without a stream is the JetStream stream of exactly that name. A name
 * that would be too long is shortened to its SHA-256; the subject still tells it in full.
 */
export function streamName({ stream, topic, partition, lineage }: PartitionPlace): string {
  if (partition === 0) return firstStreamName({ stream, topic })
  const tail = `_${partition}_${lineage}`
  return `${stem({ stream, topic }, longestStreamName - tail.length)}${tail}`
}

/** The JetStream stream of partition 0, which tells all else about a topic. */
export function firstStreamName({ stream, topic }: TopicName): string {
  if (stream === "") return topic
  return `${stem({ stream, topic }, longestStreamName - "_0".length)}_0`
}

/** The subject of a partition. */
export function subjectOf({ stream, topic, partition, lineage }: PartitionPlace): string {
  return `${subjectStem({ stream, topic })}.${partition}.${lineage}`
}

/** A filter for the subjects of every partition and every life of a topic. */
export function topicFilter(name: TopicName): string {
  return `${subjectStem(name)}.*.*`
}

/** A filter for the subjects of partition 0 of every topic of a stream. */
export function firstPartitionsOf(stream: string): string {
  return `${subjectRoot}.${streamToken(stream)}.*.0.*`
}

/** A filter for the subjects of partition 0 of every topic. */
export const firstPartitions: string = `${subjectRoot}.*.*.0.*`

/** What a subject tells, or `undefined` when it is none of Millrace's. */
export function parseSubject(subject: string): PartitionPlace | undefined {
  const [root, stream, topic, partition, lineage, more] = subject.split(".")
  if (root !== subjectRoot || stream === undefined || topic === undefined || lineage === undefined) return undefined
  if (more !== undefined || !/^\d+$/.test(partition ?? "")) return undefined
  try {
    return {
      stream: stream === noStream ? "" : unescapeName(stream),
      topic: unescapeName(topic),
      partition: Number(partition),
      lineage,
    }
  } catch (error) {
    if (error instanceof DecodeError) return undefined
    throw error
  }
}

/**
 * A topic without a stream is a JetStream stream of exactly its name.
 * @throws InvalidError for a name that JetStream does not take, or that is kept for topics with a stream
 */
export function checkBareName(topic: string): void {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (/[\s.*>\\/\u0000-\u001f\u007f]/.test(topic) || Buffer.byteLength(topic) > longestStreamName || topic === "") {
    throw new InvalidError(
      `topic ${JSON.stringify(topic)} without a stream is a JetStream stream of that name: 1 to ${longestStreamName} bytes without spaces, control characters, ".", "*", ">", "/" and "\\"`,
      { context: { topic } },
    )
  }
}

/** Whether a JetStream stream's name is of the form that topics with a stream have. */
export function isReservedName(name: string): boolean {
  return name.startsWith(`${subjectRoot}_`) || name.startsWith(`${subjectRoot}=`)
}

function stem({ stream, topic }: TopicName, longest: number): string {
  const readable = `${subjectRoot}_${escapeName(stream)}_${escapeName(topic)}`
  if (readable.length <= longest) return readable
  return `${subjectRoot}=${createHash("sha256").update(subjectStem({ stream, topic })).digest("hex")}`
}

function subjectStem({ stream, topic }: TopicName): string {
  return `${subjectRoot}.${streamToken(stream)}.${escapeName(topic)}`
}

function streamToken(stream: string): string {
  return stream === "" ? noStream : escapeName(stream)
}
