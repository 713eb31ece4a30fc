/** What a trial tidies up at its end: the last thing first, so that processes are gone before their directory goes. */

/** Anything with `after`: a test, or a suite's context. */
export interface Owner {
  after(callback: () => void | Promise<void>): void
}

type Tidy = () => void | Promise<void>

const tidies = new WeakMap<Owner, Tidy[]>()

/** Runs a function after the test, before all that were given earlier. Each runs, even when another fails. */
export function atEnd(t: Owner, tidy: Tidy): void {
  const known = tidies.get(t)
  if (known !== undefined) {
    known.push(tidy)
    return
  }
  const list = [tidy]
  tidies.set(t, list)
  t.after(async () => {
    const failures: unknown[] = []
    for (const last of list.toReversed()) {
      try {
        await last()
      } catch (error) {
        failures.push(error)
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, "tidying up after the trial failed")
  })
}
