import type { PreparedTransaction } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { need } from "../client/topic-options.ts"

/**
 * The transactions that are prepared and wait for `complete`, whoever prepared them, oldest first. Where the backend cannot prepare: none.
 * @throws UnsupportedError where the backend has no transactions
 */
export async function preparedTransactions(client: ClientContext): Promise<PreparedTransaction[]> {
  const { manifest, transactions } = client.session
  need(manifest, manifest.transactions, { owner: "client", what: "transactions" })
  const found = await transactions.list()
  return [...found].sort((one, other) => other.ageMs - one.ageMs)
}
