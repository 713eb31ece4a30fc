/** The thread behind `bare-file.ts`. */
import { closeSync, fdatasyncSync, openSync, writevSync } from "node:fs"
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads"
import type { BareFileSetup } from "./bare-file.ts"

/** `IOV_MAX` of Linux: one `writev` takes no more. */
const largestGroup = 1024

const { path, chunk } = workerData as BareFileSetup
const port = parentPort as MessagePort
const file = openSync(path, "wx")
port.postMessage("open")

port.on("message", (first: "append" | "close") => {
  let message: "append" | "close" | undefined = first
  while (message !== undefined) {
    let group = 0
    while (message === "append" && group < largestGroup) {
      group++
      message = received()
    }
    if (group > 0) writeGroup(group)
    if (message === "close") {
      closeSync(file)
      port.close()
      return
    }
    message ??= received()
  }
})

function received(): "append" | "close" | undefined {
  return receiveMessageOnPort(port)?.message as "append" | "close" | undefined
}

function writeGroup(group: number): void {
  const written = writevSync(file, new Array<Uint8Array>(group).fill(chunk))
  if (written !== group * chunk.length) throw new Error(`${path}: ${written} of ${group * chunk.length} bytes written`)
  fdatasyncSync(file)
  port.postMessage(group)
}
