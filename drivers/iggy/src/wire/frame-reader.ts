/** Cuts a stream of bytes into frames (iggy-wire.md: Frames). */
import { MillraceError } from "@millrace/contract"
import { headerBytes, sizeAt } from "./header.ts"

/** A frame, or the header alone of one that is above the limit and whose body is thrown away as it comes. */
export interface Frame {
  readonly bytes: Buffer
  /** Of the whole frame; more than `bytes` for one that is thrown away. */
  readonly sizeBytes: number
}

/**
 * Each frame comes in a buffer of its own, made when its header is complete. Memory is bounded by one header, the frame that is under
 * way, and the chunk at hand.
 */
export class FrameReader {
  readonly #mostBytes: number
  readonly #check: (header: Buffer) => void
  #frame: Buffer = Buffer.allocUnsafeSlow(headerBytes)
  #filled = 0
  /** Of the frame under way; 0 while its header is not complete. */
  #sizeBytes = 0
  /** Bytes of a frame above the limit that are still to be thrown away. */
  #waste = 0

  /**
   * @param limits.mostBytes Frames above it lose their body.
   * @param limits.check Called with each header when it is complete, before any room is made for the body; throws to refuse it.
   */
  constructor(limits: { readonly mostBytes: number; readonly check: (header: Buffer) => void }) {
    this.#mostBytes = limits.mostBytes
    this.#check = limits.check
  }

  /** Whether a frame has begun and is not complete. */
  get midway(): boolean {
    return this.#filled > 0 || this.#waste > 0
  }

  /** Takes bytes in and answers the frames that they complete. @throws MillraceError `protocol` for a size below a header's */
  push(chunk: Buffer): Frame[] {
    const frames: Frame[] = []
    let at = 0
    while (at < chunk.length) {
      if (this.#waste > 0) {
        const skipped = Math.min(this.#waste, chunk.length - at)
        this.#waste -= skipped
        at += skipped
        continue
      }
      const wanted = (this.#sizeBytes === 0 ? headerBytes : this.#sizeBytes) - this.#filled
      const taken = Math.min(wanted, chunk.length - at)
      chunk.copy(this.#frame, this.#filled, at, at + taken)
      this.#filled += taken
      at += taken
      if (taken < wanted) break
      if (this.#sizeBytes === 0) this.#beginBody(frames)
      else this.#finish(frames, this.#frame)
    }
    return frames
  }

  #beginBody(frames: Frame[]): void {
    const header = this.#frame
    const size = header.readUInt32LE(sizeAt)
    if (size < headerBytes) {
      throw new MillraceError(
        "protocol",
        `a frame says that it has ${size} bytes, fewer than its header's ${headerBytes}`,
      )
    }
    this.#check(header)
    this.#sizeBytes = size
    if (size === headerBytes || size > this.#mostBytes) {
      this.#waste = size - headerBytes
      this.#finish(frames, header)
      return
    }
    const whole = size > Buffer.poolSize >>> 1 ? Buffer.allocUnsafeSlow(size) : Buffer.allocUnsafe(size)
    header.copy(whole, 0)
    this.#frame = whole
  }

  #finish(frames: Frame[], bytes: Buffer): void {
    frames.push({ bytes, sizeBytes: this.#sizeBytes })
    this.#frame = Buffer.allocUnsafe(headerBytes)
    this.#filled = 0
    this.#sizeBytes = 0
  }
}
