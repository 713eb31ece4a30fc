/**
 * Whether a lane's consumer is alive, and keeps up with the leader of its stream. A consumer lies on one of the stream's servers; one
 * that has just come back may take minutes to learn what the others have, and until then the consumer on it gives its signs of life and
 * says that it has nothing more to deliver. Only the leader tells that it stands still. Pure: the lane looks, and replaces.
 */

/** So many heartbeats of the server may be missed. */
const mostSilentBeats = 3

/** So many heartbeats' times without a record, and the leader is looked at; then again after as many. */
const quietBeatsPerLook = 2

/**
 * - wait: nothing is to be done.
 * - look: the leader is to be asked whether it has more.
 * - silent: the server has not given a sign of life for too long.
 * - behind: the leader held a record that should have come meanwhile.
 */
export type PulseVerdict = "wait" | "look" | "silent" | "behind"

export class ReaderPulse {
  #heard = false
  #silentBeats = 0
  /** Heartbeats' times since a record came. */
  #quietBeats = 0
  #owing = false

  /** Another consumer begins. */
  begin(): void {
    this.#silentBeats = 0
    this.record()
  }

  /** The consumer's server said something. */
  hear(): void {
    this.#heard = true
  }

  /** A record came. */
  record(): void {
    this.#heard = true
    this.#quietBeats = 0
    this.#owing = false
  }

  /** The leader was looked at, and holds a record that has not come. */
  owes(): void {
    this.#owing = true
  }

  /**
   * A heartbeat's time has passed. What lies on the way of a slow connection holds the signs of life up too: without one, nobody is
   * called behind.
   * @param asked Whether the server was to say something.
   * @param waiting Whether a record would be taken note of at once: none that came before waits.
   */
  tick({ asked, waiting }: { readonly asked: boolean; readonly waiting: boolean }): PulseVerdict {
    const heard = this.#heard
    this.#heard = false
    if (!asked || heard) this.#silentBeats = 0
    else if (++this.#silentBeats >= mostSilentBeats) return "silent"
    if (!asked || !heard || !waiting) return "wait"
    if (this.#owing) return "behind"
    this.#quietBeats++
    return this.#quietBeats % quietBeatsPerLook === 0 ? "look" : "wait"
  }
}
