/** The exchanges that were recorded from a server, as whole frames. */
import { readdirSync, readFileSync } from "node:fs"

export interface Exchange {
  /** The file without its ending: mostly a command's name. */
  readonly file: string
  readonly name: string
  /** Empty: the frame came unasked. */
  readonly request: Buffer
  /** Empty: there was no answer. */
  readonly response: Buffer
  readonly note: string
}

interface Stored {
  readonly name: string
  readonly request_hex: string
  readonly response_hex: string
  readonly note: string
}

const directory = new URL("../../fixtures/", import.meta.url)

/** All of them, by file and in their order there. */
export const exchanges: readonly Exchange[] = readdirSync(directory)
  .filter((file) => file.endsWith(".json"))
  .sort()
  .flatMap((file) => {
    const stored = JSON.parse(readFileSync(new URL(file, directory), "utf8")) as Stored[]
    return stored.map((one) => ({
      file: file.slice(0, -".json".length),
      name: one.name,
      request: Buffer.from(one.request_hex, "hex"),
      response: Buffer.from(one.response_hex, "hex"),
      note: one.note,
    }))
  })

/** One of them. */
export function exchange(file: string, name: string): Exchange {
  const found = exchanges.find((one) => one.file === file && one.name === name)
  if (found === undefined) throw new Error(`there is no recorded exchange ${file}/${name}`)
  return found
}
