/** The child's side of `startChild`, and of a worker thread that runs the same script: answers commands by name. */
import { flushCompileCache } from "node:module"
import { parentPort } from "node:worker_threads"

/** The commands of a child. Each gets the values that were asked with. */
export type Commands = Readonly<Record<string, (...values: never[]) => unknown>>

interface Request {
  readonly id: number
  readonly command: string
  readonly values: readonly never[]
}

/** Answers commands until the parent is gone. A failure goes back with its name and its kind. */
export function serve(commands: Commands): void {
  // A child that is killed keeps nothing for the next one otherwise.
  flushCompileCache()
  const answerOne = (request: Request): void => {
    answer(commands, request).then(send, (error: unknown) => {
      throw error
    })
  }
  if (parentPort !== null) {
    parentPort.on("message", answerOne)
    return
  }
  process.on("message", answerOne)
  process.once("disconnect", () => process.exit(0))
}

/** Tells the parent something that it did not ask for. */
export function tell(event: unknown): void {
  send({ event })
}

function send(message: unknown): void {
  if (parentPort !== null) parentPort.postMessage(message)
  else if (process.connected) process.send?.(message)
}

async function answer(commands: Commands, request: Request): Promise<unknown> {
  const { id, command, values } = request
  try {
    const run = commands[command]
    if (run === undefined) throw new Error(`there is no command ${command}, only ${Object.keys(commands).join(", ")}`)
    return { id, value: await run(...values) }
  } catch (error) {
    const { name, message, kind } = error as Error & { kind?: string }
    return { id, failure: { name, message, kind } }
  }
}
