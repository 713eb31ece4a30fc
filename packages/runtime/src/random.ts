/** Chance, as an argument. */
import { nodeCrypto } from "./node-crypto.ts"

export interface Random {
  /** 0 to 2^32 − 1. */
  uint32(): number
}

const pool = new Uint32Array(256)
let used = pool.length

/** The system's strong randomness, drawn in blocks. */
export const systemRandom: Random = {
  uint32() {
    if (used === pool.length) {
      nodeCrypto().webcrypto.getRandomValues(pool)
      used = 0
    }
    return pool[used++] as number
  },
}

/** The same numbers for the same seed (mulberry32). For tests and simulations only. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  return {
    uint32() {
      state = (state + 0x6d2b79f5) >>> 0
      let t = Math.imul(state ^ (state >>> 15), state | 1)
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
      return (t ^ (t >>> 14)) >>> 0
    },
  }
}
