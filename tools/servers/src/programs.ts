import { spawn } from "node:child_process"
import { accessSync, constants, statSync } from "node:fs"
import { delimiter, join } from "node:path"
import process from "node:process"

/** What a program said. */
export interface Output {
  readonly stdout: string
  readonly stderr: string
}

/** How a program is run. */
export interface RunOptions {
  readonly cwd?: string
  /** Set on top of this process's own variables. */
  readonly env?: Readonly<Record<string, string>>
  /** Written to its standard input, which is closed then. */
  readonly input?: string | Uint8Array
  /** Ends it with SIGKILL. */
  readonly signal?: AbortSignal
}

/** The path of a program that can be started by its bare name; `undefined` when there is none. */
export function onPath(name: string): string | undefined {
  return (process.env.PATH ?? "")
    .split(delimiter)
    .filter((folder) => folder !== "")
    .map((folder) => join(folder, name))
    .find(isProgram)
}

/** Whether this is a file that may be run. */
export function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/** Runs a program to its end. @throws Error with the end of what it said, when it cannot be started or its exit code is not 0 */
export function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: options.cwd,
      env: { ...process.env, ...options.env },
      stdio: ["pipe", "pipe", "pipe"],
      signal: options.signal,
      killSignal: "SIGKILL",
    })
    const said = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
    child.stdout.on("data", (part: Buffer) => said.stdout.push(part))
    child.stderr.on("data", (part: Buffer) => said.stderr.push(part))
    // A program that ends before it has read all of its input is judged by its exit code.
    child.stdin.on("error", () => {})
    child.stdin.end(options.input)
    child.once("error", reject)
    child.once("close", (code, signal) => {
      const stdout = Buffer.concat(said.stdout).toString()
      const stderr = Buffer.concat(said.stderr).toString()
      if (code === 0) resolve({ stdout, stderr })
      else {
        const how = code === null ? `ended by ${signal}` : `ended with exit code ${code}`
        reject(
          new Error(`${[command, ...args].join(" ").slice(0, 300)} ${how}:\n${`${stdout}${stderr}`.slice(-4_000)}`),
        )
      }
    })
  })
}
