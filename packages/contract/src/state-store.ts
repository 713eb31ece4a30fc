/** Small values of the SDK's own, versioned: schemas, settings. Not for data: a value has at most `stateValueBytes`. */

/** The most bytes of a value: 1 MiB less room for a record's own, as the smallest backend allows. */
export const stateValueBytes: number = 900_000

/** The most bytes of a key, in UTF-8. */
export const stateKeyBytes: number = 512

export interface StateEntry {
  readonly key: string
  readonly value: Uint8Array
  /** From 1. Grows with each change of the store's entries; never used twice for a key, also when that was deleted in between. */
  readonly revision: bigint
}

export interface StateStore {
  get(key: string): Promise<StateEntry | undefined>
  /**
   * With `ifRevision` only over that revision (0n: only when there is no value); else FencedError, which has the present one in its context
   * as `revision`. With `ttlMs` the value is gone after that time.
   * @throws RecordTooLargeError for a value above `stateValueBytes`
   */
  put(
    key: string,
    value: Uint8Array,
    options: { readonly ifRevision?: bigint; readonly ttlMs?: number },
  ): Promise<StateEntry>
  /** What is not there is deleted already. @throws FencedError as `put` */
  delete(key: string, options: { readonly ifRevision?: bigint }): Promise<void>
  /** All keys that begin with the prefix, in the order of their bytes. */
  list(prefix: string): Promise<StateEntry[]>
  /**
   * What is there, and then every change, of this session or another, the newest of each key at least. Ends when the loop does, or with the session.
   */
  watch(prefix: string): AsyncIterable<StateEntry | { readonly key: string; readonly deleted: true }>
}
