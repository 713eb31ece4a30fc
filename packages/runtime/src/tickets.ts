/** Promises that a state machine settles by number: it commands without holding anything that can wait. */
export class Tickets {
  readonly #open = new Map<number, PromiseWithResolvers<void>>()
  #last = 0

  /** A number, and the promise that `settle` with it ends. */
  issue(): { readonly ticket: number; readonly promise: Promise<void> } {
    const ticket = ++this.#last
    const resolvers = Promise.withResolvers<void>()
    this.#open.set(ticket, resolvers)
    return { ticket, promise: resolvers.promise }
  }

  /** Resolves the promises of these numbers, or rejects them with the error. Numbers that were settled before are passed over. */
  settle(tickets: readonly number[], error: Error | undefined): void {
    for (const ticket of tickets) {
      const resolvers = this.#open.get(ticket)
      this.#open.delete(ticket)
      if (error === undefined) resolvers?.resolve()
      else resolvers?.reject(error)
    }
  }
}
