/** Cuts the byte stream of a connection into frames: a length of four bytes, then as many bytes. */

/** The largest frame that is taken. A broker answers a fetch with at most what was asked for, and one batch above that. */
const largestFrameBytes: number = 256 << 20

const lengthBytes = 4

export class FrameReader {
  readonly #limitBytes: number
  /** Pieces of a frame that is not complete, or of its length. */
  #pieces: Uint8Array[] = []
  #held = 0
  /** Bytes that the frame under way has with its length; 0 while the length is not known. */
  #wanted = 0

  constructor(limitBytes: number = largestFrameBytes) {
    this.#limitBytes = limitBytes
  }

  /** Bytes that wait for the rest of their frame. At most what was received: a length alone reserves nothing. */
  get heldBytes(): number {
    return this.#held
  }

  /**
   * Takes what came, and hands out each frame that is complete, without its length. A frame that came in one piece is a view of it.
   * @throws RangeError for a length that is negative or above the limit; the stream is of no use then
   */
  push(chunk: Uint8Array, onFrame: (frame: Uint8Array) => void): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#held === 0 && chunk.length - at >= lengthBytes) {
        const total = this.#total(chunk, at)
        if (chunk.length - at >= total) {
          onFrame(chunk.subarray(at + lengthBytes, at + total))
          at += total
          continue
        }
        this.#wanted = total
      }
      const missing = (this.#wanted === 0 ? lengthBytes : this.#wanted) - this.#held
      const piece = chunk.subarray(at, Math.min(chunk.length, at + missing))
      this.#pieces.push(piece)
      this.#held += piece.length
      at += piece.length
      this.#complete(onFrame)
    }
  }

  #complete(onFrame: (frame: Uint8Array) => void): void {
    if (this.#wanted === 0) {
      if (this.#held < lengthBytes) return
      const joined = this.#join()
      this.#wanted = this.#total(joined, 0)
      this.#pieces = [joined]
    }
    if (this.#held < this.#wanted) return
    const frame = this.#join()
    this.#pieces = []
    this.#held = 0
    this.#wanted = 0
    onFrame(frame.subarray(lengthBytes))
  }

  #join(): Uint8Array {
    return this.#pieces.length === 1 ? (this.#pieces[0] as Uint8Array) : Buffer.concat(this.#pieces, this.#held)
  }

  #total(bytes: Uint8Array, at: number): number {
    const length =
      ((bytes[at] as number) << 24) |
      ((bytes[at + 1] as number) << 16) |
      ((bytes[at + 2] as number) << 8) |
      (bytes[at + 3] as number)
    // Every answer begins with a correlation id.
    if (length < 4 || length > this.#limitBytes) {
      throw new RangeError(`a frame of ${length} bytes: 4 to ${this.#limitBytes} are allowed`)
    }
    return lengthBytes + length
  }
}
