/** Where the job runs: which backend, under which name, and what becomes of the data afterwards. */
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"

/** One place for the job. */
export interface Place {
  /** The connection string. */
  readonly url: string
  /** The stream that holds the job's topics. */
  readonly stream: string
  /** In words, without passwords. */
  readonly name: string
  /** Where the flights lie until the backend has them. */
  readonly spool: string
  /** Whether the job deletes the stream when it is done. */
  readonly deletesStream: boolean
  /** Done when nothing is connected any more. Answers what to say about the data, if they stay. */
  readonly leave: () => Promise<string | undefined>
}

/** A directory that is removed afterwards. */
export async function temporaryPlace(): Promise<Place> {
  const directory = await mkdtemp(join(tmpdir(), "millrace-flights-"))
  const leave = async (): Promise<undefined> => {
    await rm(directory, { recursive: true, force: true })
  }
  return { ...directoryPlace(directory), leave }
}

/** A directory that stays. Npm runs scripts in the root of the repository; it is meant from where the user stands. */
export function keptPlace(path: string): Place {
  const directory = resolve(process.env.INIT_CWD ?? ".", path)
  return { ...directoryPlace(directory), leave: () => Promise.resolve(`The data stays in ${directory}.`) }
}

/**
 * A backend by its connection string. It keeps what others put there too, so the job has a stream of its own: a new one, which is deleted
 * afterwards, or the one that is to stay.
 * @throws Error for a log in memory, which other processes do not see
 */
export function backendPlace(url: string, kept: string | undefined): Place {
  if (url.startsWith("memory:")) {
    throw new Error(
      "the workers are processes of their own, and do not see a log in memory: give file:./dir or a server",
    )
  }
  const stream = kept ?? `flights-${randomBytes(4).toString("hex")}`
  const spool = join(tmpdir(), `millrace-spool-${stream}`)
  const server = url.replace(/\/\/[^/?]*@/, "//")
  return {
    url,
    stream,
    name: `${server}, stream ${stream}`,
    spool,
    deletesStream: kept === undefined,
    leave: async () => {
      if (kept !== undefined) return `The data stays in stream ${stream} of ${server}.`
      await rm(spool, { recursive: true, force: true })
      return undefined
    },
  }
}

function directoryPlace(directory: string): Omit<Place, "leave"> {
  const url = `file:${directory.split("/").map(encodeURIComponent).join("/")}`
  return { url, stream: "flights", name: directory, spool: join(directory, "spool"), deletesStream: false }
}
