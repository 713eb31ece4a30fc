/**
 * The buffers of batches under way. A batch is encoded in a private buffer, where a small copy costs 30 ns (in shared memory 60 to 100),
 * and moved as a whole into shared memory when it is sealed (3 to 20 ns a record of 100 bytes): from there the worker writes the log,
 * while the main thread can still read the records again, whatever becomes of the worker.
 */

import { SlabPool } from "@millrace/runtime"

/** The two pools of one session. */
export interface SlabPools {
  readonly encoding: SlabPool
  readonly sealed: SlabPool
  /** Where the ends of a large batch's records were, for the next one. */
  spareEnds: Uint32Array | undefined
}

/** Empty pools for a session. */
export function newSlabPools(): SlabPools {
  return { encoding: new SlabPool("private"), sealed: new SlabPool("shared"), spareEnds: undefined }
}
