/**
 * Wire 0.12: requests that speak to a partition must name the life of it that they mean (iggy-wire.md: Wire 0.12). The routes are asked for once and
 * kept until the server refuses one or the session ends.
 */
import { noContext, type PartitionContext } from "../codec/catalog-structures.ts"
import type { PartitionRef, PartitionRoute } from "../codec/message-structures.ts"

/** All are forgotten when there are more. */
const mostRoutes = 10_000

export class PartitionRoutes {
  readonly #ask: (place: PartitionRef, timeoutMs: number) => Promise<PartitionRoute>
  readonly #routes = new Map<string, Promise<PartitionContext>>()

  constructor(ask: (place: PartitionRef, timeoutMs: number) => Promise<PartitionRoute>) {
    this.#ask = ask
  }

  /** What a request to the partition carries. Those who ask at the same time share one request. @throws as the request for a route */
  find(place: PartitionRef, timeoutMs: number): Promise<PartitionContext> {
    const key = keyOf(place)
    const known = this.#routes.get(key)
    if (known !== undefined) return known
    if (this.#routes.size >= mostRoutes) this.#routes.clear()
    const route = this.#ask(place, timeoutMs).then(({ incarnation, metadataOp }) => ({
      ...noContext,
      incarnation,
      metadataOp,
    }))
    this.#routes.set(key, route)
    route.catch(() => {
      if (this.#routes.get(key) === route) this.#routes.delete(key)
    })
    return route
  }

  /** The server says that the partition has moved on. */
  forget(place: PartitionRef): void {
    this.#routes.delete(keyOf(place))
  }

  clear(): void {
    this.#routes.clear()
  }
}

/** Numbers and names of the same thing are kept apart; that costs a second route at most. */
function keyOf({ stream, topic, partition }: PartitionRef): string {
  return JSON.stringify([stream, topic, partition])
}
