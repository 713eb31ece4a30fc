/** The child's side of `memory-10m`. */

export interface Phases {
  write(): Promise<void>
  read(): Promise<void>
  /** The channel was closed. */
  end(): Promise<void>
}

/** Says `ready`, runs the phase that each message names, and answers its name when it is done. A failure ends the process with code 1. */
export function answerInTurn(phases: Phases): void {
  const run = async (work: () => Promise<void>, name: string): Promise<void> => {
    try {
      await work()
      if (process.connected) process.send?.(name)
    } catch (error) {
      console.error(error)
      process.exit(1)
    }
  }
  process.on("message", (name: "write" | "read") => void run(phases[name], name))
  process.once("disconnect", () => void run(phases.end, "end"))
  process.send?.("ready")
}
