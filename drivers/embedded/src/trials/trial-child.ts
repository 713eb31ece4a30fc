/** A process of a trial, seen from the test: asked by name, watched, stopped and killed. None outlives its test. */
import { type ChildProcess, spawn } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { trialDirectory } from "./trial-directory.ts"
import { atEnd, type Owner } from "./trial-end.ts"

/** What a child sends of its own accord. */
export type Tell = (event: unknown) => void

/** What runs a child besides Node itself, e.g. `["strace", "-f"]`, and what it is given. */
export interface ChildOptions {
  readonly under?: readonly string[]
  /** The script's own arguments. */
  readonly values?: readonly string[]
  /** Where `joinChild` has put its program. Default: it is run as it stands beside this file. */
  readonly joined?: string | undefined
  /** Its standard output goes nowhere. */
  readonly quiet?: boolean
  readonly onTell?: Tell
  /** Longer without an answer than this is a failure of the test. */
  readonly patienceMs?: number
}

export interface TrialChild {
  readonly pid: number
  /** Asks for a command of the child's `serve`. Rejects with what the child threw, or when it is gone. */
  ask<R>(command: string, ...values: readonly unknown[]): Promise<R>
  signal(name: NodeJS.Signals): void
  /** Lets the process end by itself. */
  end(): void
  /** The exit, as `code` or the signal's name. */
  readonly exited: Promise<number | NodeJS.Signals>
}

interface Reply {
  readonly id: number
  readonly value?: unknown
  readonly failure?: { readonly name: string; readonly message: string; readonly kind?: string }
}

/** Starts `<script>.child.ts` beside this file in a process group of its own, killed when the test ends. */
export function startChild(t: Owner, script: string, options: ChildOptions = {}): TrialChild {
  const extension = import.meta.url.endsWith(".ts") ? "ts" : "js"
  const { joined } = options
  const path =
    joined === undefined
      ? fileURLToPath(new URL(`./${script}.child.${extension}`, import.meta.url))
      : join(joined, `${script}.mjs`)
  const [program, ...rest] = [
    ...(options.under ?? []),
    process.execPath,
    ...process.execArgv.filter((argument) => argument.startsWith("--conditions=")),
    path,
    ...(options.values ?? []),
  ] as [string, ...string[]]
  const child = spawn(program, rest, {
    detached: true,
    stdio: ["ignore", options.quiet ? "pipe" : "inherit", "inherit", "ipc"],
    serialization: "advanced",
    env:
      joined === undefined
        ? { NODE_COMPILE_CACHE: compileCache(t), ...process.env }
        : { ...process.env, NODE_COMPILE_CACHE: join(joined, "compiled") },
  })
  child.stdout?.resume()
  const exited = new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.once("error", reject)
    child.once("exit", (code, signal) => resolve(code ?? (signal as NodeJS.Signals)))
  })
  exited.catch(() => undefined)
  atEnd(t, async () => {
    signalGroup(child, "SIGKILL")
    await exited
  })
  return {
    pid: child.pid as number,
    exited,
    signal: (name) => signalGroup(child, name),
    end: () => child.disconnect(),
    ask: asking(child, options),
  }
}

const caches = new WeakMap<Owner, string>()

/** Where the children of a test keep their compiled modules: the second one starts in a fraction of the time. */
function compileCache(t: Owner): string {
  const known = caches.get(t) ?? trialDirectory(t, { inMemory: true })
  caches.set(t, known)
  return known
}

function asking(child: ChildProcess, options: ChildOptions): TrialChild["ask"] {
  const waiting = new Map<number, { resolve(value: never): void; reject(error: Error): void }>()
  let asked = 0
  child.on("message", (message: Reply | { readonly event: unknown }) => {
    if ("event" in message) return options.onTell?.(message.event)
    const asker = waiting.get(message.id)
    waiting.delete(message.id)
    if (message.failure === undefined) return asker?.resolve(message.value as never)
    asker?.reject(Object.assign(new Error(message.failure.message), message.failure))
  })
  child.once("exit", (code, signal) => {
    for (const { reject } of waiting.values()) reject(new Error(`the child is gone: ${code ?? signal}`))
    waiting.clear()
  })
  return (command, ...values) =>
    new Promise((resolve, reject) => {
      if (child.exitCode !== null || child.signalCode !== null || !child.connected) {
        return reject(new Error(`the child is gone: ${child.exitCode ?? child.signalCode}`))
      }
      asked += 1
      const id = asked
      const patience = setTimeout(() => {
        waiting.delete(id)
        reject(new Error(`the child did not answer ${command} within ${options.patienceMs ?? 60_000} ms`))
      }, options.patienceMs ?? 60_000)
      const settled = <V>(settle: (value: V) => void) => {
        return (value: V): void => {
          clearTimeout(patience)
          settle(value)
        }
      }
      waiting.set(id, { resolve: settled(resolve as (value: never) => void), reject: settled(reject) })
      child.send({ id, command, values }, (error) => {
        if (error !== null) waiting.get(id)?.reject(error)
      })
    })
}

function signalGroup(child: ChildProcess, name: NodeJS.Signals): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error
  }
}

/** Whether every thread of a process is stopped: one that is waiting for the disk stops when it is back. */
export function isStopped(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((thread) => {
    const text = readFileSync(`/proc/${pid}/task/${thread}/stat`, "utf8")
    return text.slice(text.lastIndexOf(")") + 2).startsWith("T")
  })
}
