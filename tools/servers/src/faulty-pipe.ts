import type { Socket } from "node:net"
import type { DirectionConditions, Verdict } from "./proxied-connection.ts"

/** What a pipe asks and tells. */
export interface FaultyPipeOptions {
  readonly conditions: DirectionConditions
  readonly judge: (bytes: Uint8Array, before: number) => Verdict
  readonly passed: (size: number) => void
  readonly cut: (how: "end" | "reset") => void
}

/** So much may be under way on a delayed line; then its sender waits. */
const mostUnderWayBytes = 4 * 1024 * 1024
/** A throttled line passes pieces of so much of a second. */
const throttleStepSeconds = 0.02

interface Piece {
  readonly bytes: Uint8Array
  readonly dueAt: number
}

/** One direction of a connection: reads chunks, has them judged, and writes them when the line's conditions allow. */
export class FaultyPipe {
  readonly #from: Socket
  readonly #to: Socket
  readonly #options: FaultyPipeOptions
  readonly #line: Piece[] = []
  #underWayBytes = 0
  #came = 0
  #ended = false
  #stopped = false
  #pumping = false
  #wake: () => void = () => {}

  constructor(from: Socket, to: Socket, options: FaultyPipeOptions) {
    this.#from = from
    this.#to = to
    this.#options = options
    from.on("data", this.#take)
    from.once("end", () => {
      this.#ended = true
      this.#start()
    })
    if (options.conditions.stalled) from.pause()
  }

  /** The conditions changed. */
  wake(): void {
    if (this.#stopped) return
    this.#regulate()
    this.#wake()
    this.#start()
  }

  /** Nothing is passed on from now on. */
  stop(): void {
    this.#stopped = true
    this.#line.length = 0
    this.#from.off("data", this.#take)
    // What still comes is read and forgotten, so that its end is seen.
    this.#from.resume()
    this.#wake()
  }

  readonly #take = (chunk: Buffer): void => {
    if (this.#stopped) return
    const { conditions } = this.#options
    const dropped = Math.min(conditions.dropBytes, chunk.length)
    conditions.dropBytes -= dropped
    const bytes = chunk.subarray(dropped)
    const before = this.#came + dropped
    this.#came += chunk.length
    if (bytes.length === 0) return
    this.#obey(this.#judge(bytes, before), bytes)
  }

  #judge(bytes: Uint8Array, before: number): Verdict {
    try {
      return this.#options.judge(bytes, before)
    } catch (error) {
      // A script that fails is a fault of the test: it must be seen.
      console.error("the proxy's script failed, and the connection is reset:", error)
      return "reset"
    }
  }

  #obey(verdict: Verdict, bytes: Uint8Array): void {
    if (verdict === "drop") return
    if (verdict === "pass") this.#put(bytes, 0)
    else if (verdict === "cut") this.#options.cut("end")
    else if (verdict === "reset") this.#options.cut("reset")
    else if (verdict instanceof Uint8Array) this.#put(verdict, 0)
    else if ("delayMs" in verdict) this.#put(bytes, verdict.delayMs)
    else {
      this.#to.write(bytes)
      this.#options.passed(bytes.length)
      this.#options.cut(verdict.passThen === "cut" ? "end" : "reset")
    }
  }

  #put(bytes: Uint8Array, extraDelayMs: number): void {
    this.#line.push({ bytes, dueAt: performance.now() + this.#options.conditions.delayMs + extraDelayMs })
    this.#underWayBytes += bytes.length
    this.#regulate()
    this.#start()
  }

  /** Reads no more than the line holds, and nothing while it stands still. */
  #regulate(): void {
    if (this.#options.conditions.stalled || this.#underWayBytes >= mostUnderWayBytes) this.#from.pause()
    else this.#from.resume()
  }

  #start(): void {
    if (this.#pumping || this.#stopped) return
    this.#pumping = true
    this.#pump().catch((error) => {
      console.error("the proxy's pipe failed, and the connection is reset:", error)
      this.#options.cut("reset")
    })
  }

  /** Ends in the same turn in which it finds nothing to do: what comes a moment later must find it at rest, and start it again. */
  async #pump(): Promise<void> {
    try {
      for (let piece = this.#line[0]; piece !== undefined || this.#ended; piece = this.#line[0]) {
        if (this.#stopped) return
        if (this.#options.conditions.stalled) return
        if (piece === undefined) {
          this.#to.end()
          return
        }
        const earlyMs = piece.dueAt - performance.now()
        if (earlyMs > 0) await this.#sleep(earlyMs)
        else {
          this.#line.shift()
          this.#underWayBytes -= piece.bytes.length
          await this.#write(piece.bytes)
          this.#regulate()
        }
      }
    } finally {
      this.#pumping = false
    }
  }

  async #write(bytes: Uint8Array): Promise<void> {
    for (let start = 0; start < bytes.length; ) {
      const { bytesPerSecond, stalled } = this.#options.conditions
      if (this.#stopped || this.#to.destroyed) return
      if (stalled) await this.#sleep(60_000)
      else {
        const step =
          bytesPerSecond === undefined ? bytes.length : Math.max(1, Math.floor(bytesPerSecond * throttleStepSeconds))
        const part = bytes.subarray(start, start + step)
        start += part.length
        this.#options.passed(part.length)
        if (!this.#to.write(part)) await this.#drained()
        if (bytesPerSecond !== undefined) await this.#sleep((part.length / bytesPerSecond) * 1_000)
      }
    }
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const go = (): void => {
        this.#to.off("drain", go)
        this.#to.off("close", go)
        resolve()
      }
      this.#to.on("drain", go)
      this.#to.on("close", go)
    })
  }

  /** Waits, or until the conditions change. */
  #sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delayMs)
      // A forgotten proxy must not keep a test process alive.
      timer.unref()
      this.#wake = () => {
        clearTimeout(timer)
        this.#wake = () => {}
        resolve()
      }
    })
  }
}
