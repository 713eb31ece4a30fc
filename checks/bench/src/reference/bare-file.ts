/**
 * The first reference: a growing file and nothing else. A worker thread takes everything that is outstanding when its last sync ended
 * as one group and writes it with one `writev` and one `fdatasync`. No offsets, no checksum, no index, no copy.
 */
import { once } from "node:events"
import { Worker } from "node:worker_threads"
import { sibling } from "../sibling.ts"

/** What the worker is started with. */
export interface BareFileSetup {
  readonly path: string
  /** The bytes of every append, in shared memory: nothing is copied on the way to the file. */
  readonly chunk: Uint8Array
}

export interface BareFile {
  /** Appends the chunk once; settles after the sync that covers it. */
  append(): Promise<void>
  close(): Promise<void>
}

/**
 * Settles once the file is there.
 * @param path the file to create.
 */
export async function openBareFile(path: string, chunk: Uint8Array): Promise<BareFile> {
  const worker = new Worker(sibling(import.meta.url, "bare-file.child"), {
    workerData: { path, chunk } satisfies BareFileSetup,
  })
  const waiting: PromiseWithResolvers<void>[] = []
  let failure: unknown
  const exited = new Promise<void>((resolve) => worker.once("exit", () => resolve()))
  worker.on("error", (error) => {
    failure = error
    for (const ticket of waiting.splice(0)) ticket.reject(error)
  })
  await once(worker, "message")
  worker.on("message", (group: number) => {
    for (const ticket of waiting.splice(0, group)) ticket.resolve()
  })
  return {
    append() {
      if (failure !== undefined) return Promise.reject(failure)
      const ticket = Promise.withResolvers<void>()
      waiting.push(ticket)
      worker.postMessage("append")
      return ticket.promise
    },
    async close() {
      worker.postMessage("close")
      await exited
    },
  }
}
