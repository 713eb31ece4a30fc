/** Facets for a backend that lacks them. The core refuses earlier, by the manifest; these make sure that nothing else slips through. */
import { UnsupportedError } from "./error.ts"
import type { Capability } from "./manifest.ts"
import type { QueueBroker } from "./queue-broker.ts"
import type { StateStore } from "./state-store.ts"
import type { Transactions } from "./transactions.ts"

/** The error for a capability that is not there: names the backend, the reason, and what to use instead. */
export function unsupported(backend: string, what: string, capability: Capability): UnsupportedError {
  const detail = capability.supported ? "" : `: ${capability.reason}. ${capability.instead}`
  return new UnsupportedError(`${backend} has no ${what}${detail}`)
}

export function absentQueues(backend: string, capability: Capability): QueueBroker {
  const refuse = (): Promise<never> => Promise.reject(unsupported(backend, "work queues", capability))
  return { open: refuse, describe: refuse, list: refuse, delete: refuse }
}

export function absentTransactions(backend: string, capability: Capability): Transactions {
  const refuse = (): Promise<never> => Promise.reject(unsupported(backend, "transactions", capability))
  return { init: refuse, list: refuse }
}

export function absentState(backend: string, capability: Capability): StateStore {
  const refuse = (): Promise<never> => Promise.reject(unsupported(backend, "small state", capability))
  return {
    get: refuse,
    put: refuse,
    delete: refuse,
    list: refuse,
    watch: () => ({ [Symbol.asyncIterator]: () => ({ next: refuse }) }),
  }
}
