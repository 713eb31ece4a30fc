import type { ChildProcess } from "node:child_process"
import { fork } from "node:child_process"
import { extname } from "node:path"

/** What a process tells its parent, before it handles a flight and (a worker) after it stored a snapshot. */
export type WorkerReport =
  | { readonly kind: "assigned" | "released"; readonly partitions: readonly number[] }
  | { readonly kind: "delivered"; readonly partition: number; readonly offset: bigint }
  | { readonly kind: "stored"; readonly partition: number; readonly upTo: bigint }

/** The programs of the processes: `worker.ts` counts at least once, `processor.ts` makes records exactly once. */
export type Program = "worker" | "processor"

/** What a process is started with. */
export interface WorkerTask {
  readonly url: string
  readonly stream: string
  readonly sessionTimeoutMs: number
}

/** A worker or processor, seen from its parent. */
export class WorkerProcess {
  readonly number: number
  /** In words: `worker 1`. */
  readonly name: string
  /** Settles when the process is gone, with its exit code; `undefined` when a signal ended it. */
  readonly exited: Promise<number | undefined>
  /** Flights that were delivered to it. */
  delivered = 0
  /** Of these, so many came after its last snapshot. */
  unsaved = 0
  /** The partitions that it has. */
  readonly partitions: Set<number> = new Set()
  readonly #child: ChildProcess

  constructor(
    [program, number]: readonly [program: Program, number: number],
    task: WorkerTask,
    onReport: (worker: WorkerProcess, report: WorkerReport) => void,
  ) {
    this.number = number
    this.name = `${program} ${number}`
    const file = new URL(`./${program}${extname(import.meta.url)}`, import.meta.url)
    this.#child = fork(file, [JSON.stringify(task)], { serialization: "advanced" })
    this.#child.on("message", (message) => {
      const report = message as WorkerReport
      this.#note(report)
      onReport(this, report)
    })
    this.exited = new Promise((resolve, reject) => {
      this.#child.once("error", reject)
      this.#child.once("close", (code) => resolve(code ?? undefined))
    })
  }

  /** Asks it to commit what it has and to leave. */
  stop(): void {
    if (this.#child.connected) this.#child.send("stop")
  }

  /** Ends it at once, as a power cut would. */
  kill(): void {
    this.#child.kill("SIGKILL")
  }

  #note(report: WorkerReport): void {
    if (report.kind === "delivered") {
      this.delivered++
      this.unsaved++
    } else if (report.kind === "stored") this.unsaved = 0
    else if (report.kind === "assigned") for (const partition of report.partitions) this.partitions.add(partition)
    else for (const partition of report.partitions) this.partitions.delete(partition)
  }
}
