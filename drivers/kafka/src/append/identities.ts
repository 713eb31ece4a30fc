/** Producer identities: ids that brokers hand out (KIP-98), epochs that this side counts on (KIP-360). */
import type { Identity } from "@millrace/contract"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansOtherCoordinator } from "../errors.ts"
import type { Pauses } from "../pauses.ts"
import { initProducerIdApi } from "../protocol/api.ts"

/** Epochs have 15 bits. Behind the last one comes a new id. */
const lastEpoch = 0x7fff

/** How often one call asks again while the broker is not ready, and the pause in between, ms. */
const mostTries = 5
const pauseMs = 100

/** Only transactions end by it; without a transactional id it means nothing, and must be positive. ms */
const transactionTimeoutMs = 60_000

/**
 * A new identity, or the next epoch of one. The next epoch is not asked for: without a transactional id brokers take whatever is newer
 * than what the partition has seen, and refuse what is older.
 */
export async function identify(
  parts: { readonly cluster: Cluster; readonly pauses: Pauses },
  bump?: Identity,
): Promise<Identity> {
  if (bump !== undefined && bump.epoch < lastEpoch) return { producerId: bump.producerId, epoch: bump.epoch + 1 }
  for (let attempt = 1; ; attempt++) {
    const body = { transactionalId: null, transactionTimeoutMs }
    const answer = await parts.cluster.request(initProducerIdApi, body, { kind: "any" }, { readOnly: true })
    if (answer.errorCode === errorCode.none) return { producerId: answer.producerId, epoch: answer.producerEpoch }
    if (attempt >= mostTries || !meansOtherCoordinator(answer.errorCode)) {
      throw kafkaError(answer.errorCode, { what: "asking for a producer identity", readOnly: true })
    }
    await parts.pauses.wait(pauseMs)
  }
}
