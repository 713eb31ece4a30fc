/** A session whose engine runs in this thread: quick to open and to close, for trials that open a store hundreds of times. */
import { errorFromWire, type Session } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { EmbeddedCatalog } from "../catalog.ts"
import type { Channel } from "../channel.ts"
import { Engine } from "../engine/engine.ts"
import type { EngineReply } from "../engine/request.ts"
import { StoreDirectory } from "../engine/store-directory.ts"
import { EmbeddedLog } from "../log.ts"
import { embeddedManifest } from "../manifest.ts"
import { EmbeddedOffsets } from "../offset-store.ts"
import { EmbeddedQueues } from "../queue-broker.ts"
import { EmbeddedTransactions } from "../transactions.ts"

/** The parts of a session that these trials use. */
export type LogSession = Pick<Session, "manifest" | "catalog" | "log" | "offsets" | "queues" | "transactions" | "close">

/** Opens a store in this thread. @throws as the driver does */
export function openThreadSession(directory: string): LogSession {
  const pending = new Map<number, { resolve(value: never): void; reject(error: Error): void }>()
  const answer = (replies: readonly EngineReply[]): void => {
    for (const reply of replies) {
      const asker = pending.get(reply.id)
      pending.delete(reply.id)
      if ("error" in reply) asker?.reject(errorFromWire(reply.error))
      else asker?.resolve(reply.value as never)
    }
  }
  const options = { clock: systemClock, random: systemRandom, sync: true, answer }
  const engine = new Engine(StoreDirectory.make(directory), options)
  let asked = 0
  const channel: Channel = {
    call: (name, args) =>
      new Promise((resolve, reject) => {
        asked += 1
        pending.set(asked, { resolve, reject })
        engine.submit([{ id: asked, name, args }])
      }),
  }
  const log = new EmbeddedLog(channel)
  const queues = new EmbeddedQueues({ channel, clock: systemClock })
  const transactions = new EmbeddedTransactions(channel)
  const close = async (): Promise<void> => {
    await log.close()
    await queues.close()
    await transactions.close()
    engine.close()
  }
  return {
    manifest: embeddedManifest,
    catalog: new EmbeddedCatalog(channel),
    log,
    offsets: new EmbeddedOffsets(channel),
    queues,
    transactions,
    close,
  }
}
