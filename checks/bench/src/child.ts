/** A process of its own that answers one message at a time, and whose death is an error instead of a silence. */
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { env } from "node:process"
import { fileURLToPath } from "node:url"

export interface Child {
  readonly pid: number
  send(message: string): void
  /** The next message that the child sends. @throws Error when the child ends first. */
  receive(): Promise<unknown>
  /** Asks the child to end by closing the channel, and waits. @throws Error when its exit code is not 0. */
  end(): Promise<void>
}

/** Starts a module in a process of its own. With `compiled` it gets the compiled packages, as those who installed them do. */
export function startChild(
  module: URL,
  args: readonly string[],
  { compiled = false }: { readonly compiled?: boolean } = {},
): Child {
  const process = fork(fileURLToPath(module), args, compiled ? { env: { ...env, NODE_OPTIONS: "" }, execArgv: [] } : {})
  const arrived: unknown[] = []
  let waiting: PromiseWithResolvers<unknown> | undefined
  const ended = exitOf(process)
  process.on("message", (message) => {
    if (waiting === undefined) arrived.push(message)
    else waiting.resolve(message)
    waiting = undefined
  })
  void ended.then((how) => waiting?.reject(new Error(`the child process ended: ${how}`)))
  return {
    pid: process.pid as number,
    send: (message) => void process.send(message),
    receive() {
      if (arrived.length > 0) return Promise.resolve(arrived.shift())
      if (process.exitCode !== null || process.signalCode !== null)
        return Promise.reject(new Error("the child process ended"))
      waiting = Promise.withResolvers()
      return waiting.promise
    },
    async end() {
      if (process.connected) process.disconnect()
      const how = await ended
      if (how !== "exit code 0") throw new Error(`the child process ended: ${how}`)
    },
  }
}

async function exitOf(process: ChildProcess): Promise<string> {
  const [code, signal] = (await once(process, "exit")) as [number | null, string | null]
  return signal === null ? `exit code ${code}` : `signal ${signal}`
}
