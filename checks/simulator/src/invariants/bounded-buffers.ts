import type { Evidence, Invariant } from "./invariant.ts"

/** What was accepted and has not settled never takes more than `maxBufferBytes`, counted by its payloads. */
export const boundedBuffers: Invariant = {
  name: "buffers are bounded",
  *check(evidence) {
    for (const [lane, limitBytes] of evidence.budgets) {
      const most = mostBytes(lane, evidence)
      if (most > limitBytes) yield `lane ${lane} held ${most} bytes of payload; ${limitBytes} may be held`
    }
  },
}

function mostBytes(lane: number, { program }: Evidence): number {
  const changes: (readonly [at: number, bytes: number])[] = []
  for (const call of program.calls) {
    if (call.lane.id !== lane || call.promises !== "accepted" || call.state !== "done") continue
    for (const { releasedAt, bytes, resend } of call.records) {
      if (resend === undefined && releasedAt > call.settledAt)
        changes.push([call.settledAt, bytes], [releasedAt, -bytes])
    }
  }
  changes.sort((a, b) => a[0] - b[0])
  let held = 0
  let most = 0
  for (const [, bytes] of changes) {
    held += bytes
    if (held > most) most = held
  }
  return most
}
