import { relative } from "node:path"
import { inspect } from "node:util"

/** The part of an event of `node:test` that is read here. */
export interface TestEvent {
  readonly type: string
  readonly data: {
    readonly name?: string
    readonly file?: string | undefined
    readonly nesting?: number
    readonly message?: string
    readonly skip?: string | boolean | undefined
    readonly todo?: string | boolean | undefined
    readonly details?: {
      readonly type?: string | undefined
      readonly duration_ms?: number
      readonly error?: unknown
    }
  }
}

/** How a run is judged and shown. */
export interface TallyOptions {
  /** What must not be missing: a skip whose reason begins with `needs <name>:` counts as a failure. `all` stands for every name. */
  readonly required: readonly string[]
  /** Whether passed tests are named too. */
  readonly verbose: boolean
  write(text: string): void
}

interface Skip {
  readonly name: string
  readonly file: string
  readonly reason: string
}

/** The most of a failed file's own output that is shown. */
const longestOutput = 20_000

/** Counts the events of a test run, prints failures as they come, and sums up. */
export class Tally {
  readonly #options: TallyOptions
  readonly #skips: Skip[] = []
  readonly #failures: string[] = []
  readonly #output = new Map<string, string>()
  readonly #failedFiles = new Set<string>()
  readonly #files = new Set<string>()
  /** Files whose process runs. */
  readonly #running = new Set<string>()
  #passed = 0

  constructor(options: TallyOptions) {
    this.#options = options
  }

  /** Takes one event. */
  take({ type, data }: TestEvent): void {
    const file = data.file === undefined ? "" : relative(process.cwd(), data.file)
    if (type === "test:dequeue" && data.name !== undefined && file.endsWith(data.name)) this.#running.add(file)
    if (type === "test:complete" && data.name !== undefined && file.endsWith(data.name)) this.#running.delete(file)
    if (type === "test:stdout" || type === "test:stderr") this.#keep(file, data.message ?? "")
    else if (type === "test:pass" && data.details?.type !== "suite") this.#pass(file, data)
    else if (type === "test:fail") this.#fail(file, data)
  }

  /** The run is ended for a reason; the files that are running failed. */
  giveUp(reason: string): void {
    for (const file of this.#running) {
      this.#failedFiles.add(file)
      this.#failures.push(`${file}: ${reason}`)
    }
    if (this.#running.size === 0) this.#failures.push(reason)
  }

  /** Prints the sum, with what was skipped and why. Answers whether the run was good: tests ran, and none failed. */
  finish(): boolean {
    const { write } = this.#options
    for (const file of this.#failedFiles) {
      const output = this.#output.get(file)
      if (output !== undefined) write(`\noutput of ${file}:\n${output}\n`)
    }
    const missing = this.#skips.filter((skip) => this.#isRequired(skip))
    if (this.#skips.length > 0) write("\nskipped:\n")
    for (const { name, file, reason } of this.#skips) write(`  ${file}: ${name}: ${reason}\n`)
    for (const { name, reason } of missing) write(`✖ must not be skipped (MILLRACE_REQUIRE): ${name}: ${reason}\n`)
    if (this.#failures.length > 0) write("\nfailed:\n")
    for (const failure of this.#failures) write(`  ${failure}\n`)
    const ran = this.#passed + this.#failures.length
    if (ran === 0) write("✖ no test ran\n")
    write(
      `\n${this.#passed} passed, ${this.#failures.length + missing.length} failed, ${this.#skips.length} skipped in ${this.#files.size} files\n`,
    )
    return ran > 0 && this.#failures.length === 0 && missing.length === 0
  }

  #pass(file: string, { name = "", skip, details }: TestEvent["data"]): void {
    this.#files.add(file)
    if (skip !== undefined && skip !== false) {
      this.#skips.push({ name, file, reason: typeof skip === "string" ? skip : "no reason given" })
      return
    }
    this.#passed++
    if (this.#options.verbose) this.#options.write(`✔ ${file}: ${name} (${Math.round(details?.duration_ms ?? 0)} ms)\n`)
  }

  #fail(file: string, { name = "", details, todo }: TestEvent["data"]): void {
    const error = details?.error as { failureType?: string; cause?: unknown } | undefined
    // The parent of a failed test fails too, and adds nothing.
    if (error?.failureType === "subtestsFailed" || (todo !== undefined && todo !== false)) return
    this.#files.add(file)
    this.#failedFiles.add(file)
    this.#failures.push(`${file}: ${name}`)
    this.#options.write(`✖ ${file}: ${name}\n${indent(inspect(error?.cause ?? error, { depth: 4 }))}\n`)
  }

  #keep(file: string, text: string): void {
    this.#output.set(file, `${this.#output.get(file) ?? ""}${text}`.slice(-longestOutput))
  }

  #isRequired({ reason }: Skip): boolean {
    const need = /^needs ([\w-]+)/.exec(reason)?.[1]
    return need !== undefined && (this.#options.required.includes(need) || this.#options.required.includes("all"))
  }
}

function indent(text: string): string {
  return text.replace(/^/gm, "    ")
}
