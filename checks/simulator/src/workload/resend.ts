import { PublishFailedError } from "@millrace/core"
import { type CallFact, type Lane, numberIn, type RecordFact } from "./history.ts"
import type { World } from "./world.ts"

/** Sends what a failed call left behind again, as a careful program does: `topic.batch(error.unconfirmed)`. */
export function resendSomething(world: World, lane: Lane): boolean {
  const failed = world.history.calls.filter(isResendable)
  if (failed.length === 0) return false
  const call = world.chance.of(failed)
  const { unconfirmed } = call.error as PublishFailedError
  const records = unconfirmed.map(({ payload }) => world.history.records[numberIn(payload)] as RecordFact)
  const to = { topic: call.topic, startedMs: world.nowMs, promises: "confirmed", keepsIds: true } as const
  const resend = world.history.addResend(lane, to, records)
  world.follow(resend, world.topic(call.topic).batch(unconfirmed))
  return true
}

function isResendable({ error, records, isResend }: CallFact): boolean {
  if (isResend || !(error instanceof PublishFailedError) || error.unconfirmed.length === 0) return false
  return records.every(({ resend }) => resend === undefined)
}
