/** Two processes of one group, of which the first is killed in mid-way and the second takes over. */
import { Deliveries } from "./deliveries.ts"
import { Takeover } from "./takeover.ts"
import type { Program, WorkerReport, WorkerTask } from "./worker-process.ts"
import { WorkerProcess } from "./worker-process.ts"

/** What a crew asks of the work that it is at. */
export interface CrewHost {
  /** Whether this is the moment to kill this member, which has just been handed a flight. */
  isMidway(member: WorkerProcess): boolean
  killed(member: WorkerProcess): void
  stored(partition: number, upTo: bigint): void
  failed(error: unknown): void
}

/** Two processes of one program. */
export class Crew {
  readonly members: readonly WorkerProcess[]
  readonly deliveries: Deliveries = new Deliveries()
  readonly #host: CrewHost
  readonly #gone = new Set<WorkerProcess>()
  #takeover: Takeover | undefined
  #stopping = false

  /** Starts them. */
  constructor(program: Program, task: WorkerTask, host: CrewHost) {
    this.#host = host
    this.members = [1, 2].map(
      (number) => new WorkerProcess([program, number], task, (member, report) => this.#hear(member, report)),
    )
    for (const member of this.members) member.exited.then((code) => this.#bury(member, code), host.failed)
  }

  /** Whether each has partitions. */
  get isAtWork(): boolean {
    return this.members.every(({ partitions }) => partitions.size > 0)
  }

  get isGone(): boolean {
    return this.members.every((member) => this.#gone.has(member))
  }

  /** Absent when it never came to the kill. */
  get takeover(): Takeover | undefined {
    return this.#takeover
  }

  /** Asks them to commit what they have and to leave. */
  stop(): void {
    this.#stopping = true
    for (const member of this.members) member.stop()
  }

  /** Ends what is left of them at once. */
  kill(): void {
    this.#stopping = true
    for (const member of this.members) member.kill()
  }

  #hear(member: WorkerProcess, report: WorkerReport): void {
    if (report.kind === "assigned") this.#takeover?.assigned(member)
    else if (report.kind === "stored") this.#host.stored(report.partition, report.upTo)
    else if (report.kind === "delivered") this.#deliver(member, report.partition, report.offset)
  }

  #deliver(member: WorkerProcess, partition: number, offset: bigint): void {
    this.deliveries.add(partition, offset)
    this.#takeover?.delivered(member, partition)
    const isVictim = member.number === 1 && member.partitions.size > 0 && this.#takeover === undefined
    if (!isVictim || !this.#host.isMidway(member)) return
    member.kill()
    this.#takeover = new Takeover(member, member.partitions)
    this.#host.killed(member)
  }

  #bury(member: WorkerProcess, code: number | undefined): void {
    this.#gone.add(member)
    const wasKilled = code === undefined && member.number === 1 && this.#takeover !== undefined
    if (wasKilled || (this.#stopping && code === 0)) return
    const how = code === undefined ? "by a signal" : `with exit code ${code}`
    this.#host.failed(new Error(`${member.name} ended ${how}`))
  }
}
