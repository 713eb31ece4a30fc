/** What a stream, topic, consumer or group may be called: the manifest's limits, checked before anything reaches a driver. */
import { InvalidError, type Manifest, type TopicName } from "@millrace/contract"
import { shown } from "./options.ts"

const utf8 = new TextEncoder()

/**
 * Checks a name: a non-empty, well-formed string without control characters, within the backend's limit of UTF-8 bytes.
 * @param what How the error calls it: `stream`, `topic`, `consumer`, `group`, `member`.
 * @throws InvalidError that names the value and what is allowed.
 */
export function checkName(what: string, name: unknown, limits: Manifest["limits"]): string {
  if (typeof name !== "string") throw new InvalidError(`a ${what} name must be a string, not ${shown(name)}`)
  if (name.length === 0) throw new InvalidError(`a ${what} name must not be empty`)
  if (!name.isWellFormed()) throw new InvalidError(`${what} name ${shown(name)} has a lone surrogate`)
  for (let i = 0; i < name.length; i++) {
    const code = name.charCodeAt(i)
    if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) {
      const point = code.toString(16).toUpperCase().padStart(4, "0")
      throw new InvalidError(`${what} name ${shown(name)} has the control character U+${point} at index ${i}`)
    }
  }
  const bytes = utf8.encode(name).length
  if (bytes > limits.nameBytes) {
    throw new InvalidError(
      `${what} name ${shown(name)} has ${bytes} bytes of UTF-8; at most ${limits.nameBytes} are allowed`,
    )
  }
  return name
}

/** A topic as messages and errors write it: `stream/topic`, or the bare topic where the backend has no streams. */
export function topicText(name: TopicName): string {
  return name.stream === "" ? name.topic : `${name.stream}/${name.topic}`
}

/** One text a topic, injective: names hold no control characters. */
export function topicKey(name: TopicName): string {
  return `${name.stream}\n${name.topic}`
}
