/** The ceiling of everything that encodes records in Node: payloads copied into one buffer behind a length, no log at all. */

/** Encodes the payloads `rounds` times into the same buffer; answers how many bytes one round takes. */
export function encodeInto(payloads: readonly Uint8Array[], rounds: number): number {
  const buffer = new Uint8Array(payloads.reduce((sum, payload) => sum + 4 + payload.length, 0))
  const view = new DataView(buffer.buffer)
  let at = 0
  for (let round = 0; round < rounds; round++) {
    at = 0
    for (const payload of payloads) {
      view.setUint32(at, payload.length, true)
      buffer.set(payload, at + 4)
      at += 4 + payload.length
    }
  }
  return at
}
