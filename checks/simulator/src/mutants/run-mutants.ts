import { spawn } from "node:child_process"
import { availableParallelism } from "node:os"
import process from "node:process"
import { fileURLToPath } from "node:url"
import type { Mutant } from "./mutant.ts"
import { mutants } from "./mutants.ts"

/** How a mutant was noticed; absent: by no seed. */
export interface Catch {
  readonly seed: number
  readonly invariant: string
  readonly text: string
}

/** A mutant that has not come further by then runs in circles, which is noticing enough. */
const longestMs = 60_000

/**
 * Runs every mutant, or those named, each in a process of its own, and prints a table. False when one was not noticed.
 * @param told Hears each line of it.
 */
export async function runMutants(
  { seeds, names }: { readonly seeds: number; readonly names: readonly string[] },
  told: (line: string) => void,
): Promise<boolean> {
  for (const name of names) {
    if (!mutants.some((mutant) => mutant.name === name)) throw new Error(`mutant "${name}" is not known`)
  }
  const queue = mutants.filter(({ name }) => names.length === 0 || names.includes(name))
  const width = Math.max(...queue.map(({ name }) => name.length))
  const total = queue.length
  let caught = 0
  told(`${"mutant".padEnd(width)}  ${"seed".padStart(5)}  noticed by`)
  const work = async (): Promise<void> => {
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      const line = (seed: string, what: string): void => {
        told(`${mutant?.name.padEnd(width)}  ${seed.padStart(5)}  ${what}`)
      }
      try {
        const found = await catchMutant(mutant, seeds)
        if (found === undefined) line("–", `NOTHING in ${seeds} seeds`)
        else {
          caught++
          line(String(found.seed), found.invariant)
        }
      } catch (error) {
        // The others are still worth knowing.
        line("–", `NOT MADE: ${reasonOf(error as Error)}`)
      }
    }
  }
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), total) }, work))
  told(`${caught} of ${total} mutants were noticed`)
  return caught === total
}

/** The one line of a child's last words that says why. */
function reasonOf({ message }: Error): string {
  return message.split("\n").find((line) => line.startsWith("Error: ")) ?? message
}

/** Looks for the first seed that notices a mutant. @internal @throws Error when the mutant cannot be made, with the reason */
export function catchMutant({ name }: Mutant, seeds: number): Promise<Catch | undefined> {
  const child = spawn(process.execPath, [fileURLToPath(childUrl()), name, String(seeds)], {
    stdio: ["ignore", "pipe", "pipe"],
  })
  let output = ""
  let trouble = ""
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text
    timer.refresh()
  })
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    trouble += text
  })
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    child.kill("SIGKILL")
  }, longestMs)
  return new Promise((resolve, reject) => {
    child.once("error", reject)
    child.once("close", (code) => {
      clearTimeout(timer)
      if (isLate) resolve({ seed: 0, invariant: "everything ends", text: `no seed for ${longestMs} ms` })
      else if (code === 0) resolve((JSON.parse(lastLine(output)) as Catch | null) ?? undefined)
      else reject(new Error(`mutant "${name}" ended with ${code}: ${trouble}`))
    })
  })
}

function lastLine(output: string): string {
  return output.trimEnd().split("\n").at(-1) as string
}

/** Beside this file, compiled or not. */
function childUrl(): URL {
  const extension = import.meta.url.endsWith(".ts") ? "ts" : "js"
  return new URL(`./mutant.child.${extension}`, import.meta.url)
}
