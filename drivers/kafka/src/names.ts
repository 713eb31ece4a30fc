/**
 * Names of streams and topics as names of Kafka topics: topic `t` of stream `s` is `s.t`, each part escaped; a topic of the stream ""
 * is the Kafka topic of exactly that name.
 *
 * Kafka takes `a-z A-Z 0-9 . _ -`, at most 249 of them, and refuses names that differ only in `.` and `_`. So neither of these two is
 * left inside a part. Every byte of UTF-8 but letters, digits and hyphens becomes `-` and two lower-case hex digits; a hyphen is kept
 * unless two such digits stand behind it, for then it would read as an escape.
 */
import { InvalidError, type TopicName } from "@millrace/contract"

/** The longest name of a topic, in characters (Kafka's own limit, which is that of a file name less a suffix). */
export const longestTopicName = 249

const legal: RegExp = /^[a-zA-Z0-9._-]+$/
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** @throws InvalidError for what Kafka does not take as a name: the message has the name as it would be, its length and the limit */
export function kafkaTopic(name: TopicName): string {
  if (name.stream === "") return rawTopic(name)
  const kafka = `${escapePart(name.stream)}.${escapePart(name.topic)}`
  if (kafka.length > longestTopicName) {
    const what = `topic ${JSON.stringify(`${name.stream}/${name.topic}`)}`
    throw new InvalidError(
      `${what} has a name that is too long for Kafka: as ${JSON.stringify(kafka)} it has ${kafka.length} characters, ${longestTopicName} are allowed`,
      { context: contextOf(name) },
    )
  }
  return kafka
}

/** The stream and topic that a Kafka topic stands for. Inverse of `kafkaTopic`; what that did not make belongs to the stream "". */
export function topicNameOf(kafka: string): TopicName {
  const dot = kafka.indexOf(".")
  if (dot > 0 && dot === kafka.lastIndexOf(".")) {
    const stream = unescapePart(kafka.slice(0, dot))
    const topic = unescapePart(kafka.slice(dot + 1))
    if (stream !== undefined && topic !== undefined) return { stream, topic }
  }
  return { stream: "", topic: kafka }
}

function rawTopic(name: TopicName): string {
  const { topic } = name
  const what = `topic ${JSON.stringify(topic)}`
  if (topic === "." || topic === ".." || !legal.test(topic)) {
    throw new InvalidError(
      `${what} is no name of a Kafka topic: letters, digits and ". _ -" are allowed, and neither "." nor ".." alone. Names of any kind are taken for topics of a stream.`,
      { context: contextOf(name) },
    )
  }
  if (topic.length > longestTopicName) {
    throw new InvalidError(
      `${what} has a name that is too long for Kafka: ${topic.length} characters, ${longestTopicName} are allowed`,
      { context: contextOf(name) },
    )
  }
  return topic
}

function contextOf(name: TopicName): { readonly stream: string; readonly topic: string } {
  return { stream: name.stream, topic: name.topic }
}

const hyphen = 0x2d

/** Injective: two parts that differ have escapes that differ. Lone surrogates are one text, as everywhere in UTF-8. */
function escapePart(part: string): string {
  const bytes = Buffer.from(part, "utf8")
  let escaped = ""
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] as number
    const plain = byte === hyphen ? !(isHex(bytes[i + 1]) && isHex(bytes[i + 2])) : isAlphanumeric(byte)
    escaped += plain ? String.fromCharCode(byte) : `-${byte.toString(16).padStart(2, "0")}`
  }
  return escaped
}

/** `undefined` for what `escapePart` never makes. */
function unescapePart(escaped: string): string | undefined {
  const bytes: number[] = []
  for (let i = 0; i < escaped.length; i++) {
    const byte = escaped.charCodeAt(i)
    if (byte === hyphen && isHex(escaped.charCodeAt(i + 1)) && isHex(escaped.charCodeAt(i + 2))) {
      bytes.push(Number.parseInt(escaped.slice(i + 1, i + 3), 16))
      i += 2
    } else {
      bytes.push(byte)
    }
  }
  let part: string
  try {
    part = decoder.decode(Uint8Array.from(bytes))
  } catch {
    return undefined
  }
  return part !== "" && escapePart(part) === escaped ? part : undefined
}

/** Lower case only: an upper-case digit behind a hyphen is no escape. */
function isHex(byte: number | undefined): boolean {
  return byte !== undefined && ((byte >= 0x30 && byte <= 0x39) || (byte >= 0x61 && byte <= 0x66))
}

function isAlphanumeric(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a)
}
