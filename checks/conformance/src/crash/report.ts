/** Lines that a child writes to its parent before it goes on. They are written synchronously, so that what was written survives a SIGKILL. */
import { writeSync } from "node:fs"
import type { Readable } from "node:stream"

/** The descriptor that the parent reads: behind stdin, stdout, stderr and the channel of `fork`. */
export const reportDescriptor = 4

/** Blocks until the parent's pipe has taken the whole line. */
export function report(...words: readonly (string | number | bigint)[]): void {
  const line = Buffer.from(`${words.join(" ")}\n`)
  let written = 0
  while (written < line.length) written += writeSync(reportDescriptor, line, written)
}

/** Calls back with the words of each complete line; a last line that was cut by a kill is dropped. Settles at the end of the pipe. */
export async function collectReports(pipe: Readable, take: (words: string[]) => void): Promise<void> {
  let rest = ""
  pipe.setEncoding("utf8")
  for await (const chunk of pipe) {
    const lines = (rest + chunk).split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) take(line.split(" "))
  }
}
