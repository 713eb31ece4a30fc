import { closeSync, constants, openSync, readSync, writeSync } from "node:fs"

/**
 * A few bytes in a file of the store by which processes hint at something. Nothing hangs on its content: what cannot be written (a
 * full disk) is left out, and whoever waits for a hint also looks by himself.
 */
export class HintFile {
  readonly path: string
  readonly #fd: number
  readonly #bytes = Buffer.alloc(4)

  /** Opens the file, and gives it its length where it is new, so that later writes need no room. @throws the system's error */
  constructor(path: string) {
    this.path = path
    this.#fd = openSync(path, constants.O_RDWR | constants.O_CREAT, 0o666)
    if (readSync(this.#fd, this.#bytes, 0, 4, 0) < 4) this.write(1)
  }

  /** 0 to 2^32 − 1; 0 when nothing is there. */
  read(): number {
    try {
      return readSync(this.#fd, this.#bytes, 0, 4, 0) === 4 ? this.#bytes.readUInt32LE() : 0
    } catch {
      return 0
    }
  }

  write(number: number): void {
    this.#bytes.writeUInt32LE(number)
    try {
      writeSync(this.#fd, this.#bytes, 0, 4, 0)
    } catch {
      // A hint that cannot be given is a hint less.
    }
  }

  close(): void {
    closeSync(this.#fd)
  }
}
