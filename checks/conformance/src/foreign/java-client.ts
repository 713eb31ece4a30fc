/** Kafka's own client in a JVM of its own. */
import { runJava } from "@millrace/servers"

const source = new URL("./Foreign.java", import.meta.url)

/** A record as Java sees it. `null` is absent. */
export interface JavaRecord {
  /** −1 when sent: by key. */
  readonly partition: number
  readonly offset: bigint
  /** −1 when sent: now. */
  readonly timeMs: bigint
  readonly key: Uint8Array | null
  readonly value: Uint8Array | null
  readonly headers: readonly (readonly [name: string, value: Uint8Array | null])[]
}

/** What Java sends of a record; the rest has defaults. */
export type JavaDraft = Partial<JavaRecord> & Pick<JavaRecord, "value">

/** Every record of a topic, in the order of each partition, with checksums verified. */
export async function javaRead(url: string, topic: string): Promise<JavaRecord[]> {
  return (await lines(["read", brokerOf(url), topic])).map((line) => {
    const [partition = "", offset = "", timeMs = "", key = "~", value = "~", headers = ""] = line.split(" ")
    return {
      partition: Number(partition),
      offset: BigInt(offset),
      timeMs: BigInt(timeMs),
      key: bytesOf(key),
      value: bytesOf(value),
      headers: (headers === "" ? [] : headers.split(",")).map((header) => {
        const [name = "~", bytes = "~"] = header.split(";")
        return [Buffer.from(bytesOf(name) ?? []).toString(), bytesOf(bytes)] as const
      }),
    }
  })
}

/** Sends records and answers where each landed. */
export async function javaProduce(
  url: string,
  topic: string,
  { compression, records }: { readonly compression: string; readonly records: readonly JavaDraft[] },
): Promise<{ readonly partition: number; readonly offset: bigint }[]> {
  const input = records.map(({ partition = -1, timeMs = -1n, key = null, value, headers = [] }) => {
    const pairs = headers.map(([name, bytes]) => `${textOf(Buffer.from(name))};${textOf(bytes)}`)
    return `${partition} 0 ${timeMs} ${textOf(key)} ${textOf(value)} ${pairs.join(",")}\n`
  })
  const landed = await lines(["produce", brokerOf(url), topic, compression], input.join(""))
  return landed.map((line) => {
    const [partition = "", offset = ""] = line.split(" ")
    return { partition: Number(partition), offset: BigInt(offset) }
  })
}

/** The committed offsets of a group: `<topic>/<partition>` → offset. */
export async function javaOffsets(url: string, group: string): Promise<Map<string, bigint>> {
  const committed = await lines(["offsets", brokerOf(url), group])
  return new Map(
    committed.map((line) => {
      const [topic = "", partition = "", offset = ""] = line.split(" ")
      return [`${topic}/${partition}`, BigInt(offset)]
    }),
  )
}

/** Longer than any run of the program: one that waits for a topic that does not exist would not end by itself. */
const deadlineMs = 90_000

async function lines(args: readonly string[], input = ""): Promise<string[]> {
  const { stdout } = await runJava(source, args, {
    input: Buffer.from(input),
    signal: AbortSignal.timeout(deadlineMs),
  })
  return stdout
    .toString()
    .split("\n")
    .filter((line) => line !== "")
}

function brokerOf(url: string): string {
  return new URL(url).host
}

function textOf(bytes: Uint8Array | null): string {
  return bytes === null ? "~" : `.${Buffer.from(bytes).toString("base64")}`
}

function bytesOf(text: string): Uint8Array | null {
  return text === "~" ? null : new Uint8Array(Buffer.from(text.slice(1), "base64"))
}
