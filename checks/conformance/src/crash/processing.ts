/** What a processor that is killed works on, and what must come of it: one output for each input, in the order of its partition. */
import type { Message, Topic } from "millrace"

export const inputTopic = "in"
export const outputTopic = "out"
export const processGroup = "processors"
/** Of both topics: what comes from a partition goes to that of the same number. */
export const partitions = 2

const utf8 = new TextEncoder()
const strict = new TextDecoder("utf-8", { fatal: true })

/** The output that an input makes: where it stood, and what it said. */
export function inputOf({ position: { partition, offset }, payload }: Message): Uint8Array {
  return utf8.encode(`${partition}/${offset}=${strict.decode(payload ?? undefined)}`)
}

/**
 * Compares all inputs with all outputs.
 * @returns what is missing, there twice, of no input, or out of order; empty when the two are equal one to one
 */
export async function differences(input: Topic, output: Topic): Promise<string[]> {
  const expected = (await contents(input)).map((messages) => messages.map((message) => strict.decode(inputOf(message))))
  const found = (await contents(output)).map((messages) =>
    messages.map(({ payload }) => strict.decode(payload ?? undefined)),
  )
  const problems: string[] = []
  for (const [partition, wanted] of expected.entries()) {
    const got = found[partition] ?? []
    const counts = new Map<string, number>()
    for (const one of got) counts.set(one, (counts.get(one) ?? 0) + 1)
    for (const [one, times] of counts) if (times > 1) problems.push(`${one} came out ${times} times`)
    for (const one of wanted) if (!counts.delete(one)) problems.push(`${one} never came out`)
    for (const one of counts.keys()) problems.push(`${one} came out of nothing`)
    if (problems.length === 0 && wanted.some((one, index) => got[index] !== one)) {
      problems.push(`partition ${partition} is out of order`)
    }
  }
  return problems
}

/** The messages of each partition. */
async function contents(topic: Topic): Promise<Message[][]> {
  const messages: Message[][] = Array.from({ length: partitions }, () => [])
  await using cursor = await topic.replay()
  for await (const result of cursor.stream()) {
    if (result.kind === "error") throw result.error
    if (result.kind === "record") messages[result.message.position.partition]?.push(result.message.copy())
  }
  return messages
}
