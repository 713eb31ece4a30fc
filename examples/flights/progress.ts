import type { WriteStream } from "node:tty"

/** One bar: a name, and how much of the whole is done. */
export interface Bar {
  readonly name: string
  readonly done: number
  readonly whole: number
}

/** Bars on a terminal are drawn over and over in place; elsewhere a line is printed now and then. */
export class Progress {
  readonly #output: WriteStream
  readonly #bars: () => readonly Bar[]
  readonly #timer: NodeJS.Timeout
  #drawn = 0

  /** @param bars Asked for at each drawing. */
  constructor(output: WriteStream, bars: () => readonly Bar[]) {
    this.#output = output
    this.#bars = bars
    this.#timer = setInterval(() => this.#draw(), output.isTTY ? 100 : 1_000)
  }

  /** Prints a line above the bars. */
  say(line: string): void {
    this.#clear()
    this.#output.write(`${line}\n`)
    if (this.#output.isTTY) this.#draw()
  }

  /** Draws the bars a last time and stops. */
  finish(): void {
    clearInterval(this.#timer)
    this.#draw()
    this.#drawn = 0
  }

  #draw(): void {
    if (!this.#output.isTTY) {
      this.#output.write(`${this.#bars().map(describe).join(", ")}\n`)
      return
    }
    this.#clear()
    const bars = this.#bars()
    this.#output.write(`${bars.map(paint).join("\n")}\n`)
    this.#drawn = bars.length
  }

  #clear(): void {
    if (this.#drawn === 0) return
    this.#output.write(`\u001b[${this.#drawn}A\u001b[0J`)
    this.#drawn = 0
  }
}

const width = 30

function paint({ name, done, whole }: Bar): string {
  const filled = whole === 0 ? width : Math.round((Math.min(done, whole) / whole) * width)
  return `${name.padEnd(12)} ${"█".repeat(filled)}${"░".repeat(width - filled)} ${describeCount(done, whole)}`
}

function describe({ name, done, whole }: Bar): string {
  return `${name} ${describeCount(done, whole)}`
}

function describeCount(done: number, whole: number): string {
  return `${count(done)}/${count(whole)}`
}

/** A number with its thousands separated. */
export function count(number: number): string {
  return number.toLocaleString("en-US")
}
