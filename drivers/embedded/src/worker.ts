/** The worker thread of a session: one engine, and the port to the main thread. */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads"
import { errorToWire } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { Engine } from "./engine/engine.ts"
import type { EngineRequest } from "./engine/request.ts"
import { storageError } from "./engine/storage-error.ts"
import { StoreDirectory } from "./engine/store-directory.ts"
import { WakeFile } from "./wake.ts"
import type { FromWorker, ToWorker, WorkerStart } from "./worker-message.ts"

/** Messages that are taken together at most: what they ask shares commits. */
const mostMessagesPerTurn = 1024

function start(port: MessagePort, { path, sync }: WorkerStart): void {
  const send = (message: FromWorker, transfer: readonly ArrayBuffer[] = []): void =>
    port.postMessage(message, transfer as ArrayBuffer[])
  try {
    const directory = StoreDirectory.make(path)
    const wake = new WakeFile(directory.wake, systemClock, () => engine.lookAgain())
    const engine = new Engine(directory, {
      clock: systemClock,
      random: systemRandom,
      sync,
      answer: (replies, transfer) => send({ kind: "replies", replies }, transfer),
      changed: () => wake.touch(),
      waiting: () => wake.watch(),
    })
    wake.stillNeeded = () => engine.waiting > 0
    port.on("message", (first: ToWorker) => {
      const messages = [first]
      for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
        messages.push(next.message as ToWorker)
        if (messages.length >= mostMessagesPerTurn) break
      }
      const requests: EngineRequest[] = []
      for (const message of messages) {
        if (message.kind === "requests") requests.push(...message.requests)
        else if (message.kind === "cancel") {
          engine.submit(requests.splice(0))
          engine.cancel(message.id)
        } else {
          engine.submit(requests.splice(0))
          close()
          return
        }
      }
      engine.submit(requests)
    })
    const close = (): void => {
      try {
        engine.close()
        wake.close()
        send({ kind: "closed" })
      } catch (error) {
        send({ kind: "closed", error: errorToWire(error) })
      }
      port.close()
    }
    send({ kind: "open", directory: directory.path })
  } catch (error) {
    const failure = storageError(error, `opening the store at ${JSON.stringify(path)}`)
    send({ kind: "failed", error: errorToWire(failure) })
    port.close()
  }
}

if (parentPort !== null) start(parentPort, workerData as WorkerStart)
