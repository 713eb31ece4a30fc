/** The number of a record: what its payload begins with; 0 where it has none. */
export function numberIn(payload: Uint8Array | null): number {
  if (payload === null || payload.length < 4) return 0
  return new DataView(payload.buffer, payload.byteOffset).getUint32(0)
}

/** A payload that begins with a number. */
export function numbered(number: number): Uint8Array {
  const payload = new Uint8Array(4)
  new DataView(payload.buffer).setUint32(0, number)
  return payload
}
