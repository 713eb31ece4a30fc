/** Lets one loop sleep until somebody changes the state that it looks at. A wake before the sleep is not lost. */
export class Wakeup {
  #woken = false
  #resolve: (() => void) | undefined

  /** Ends the present sleep, or the next one at once. */
  wake(): void {
    this.#woken = true
    this.#resolve?.()
  }

  /** Only one caller at a time. */
  async sleep(): Promise<void> {
    if (!this.#woken) {
      await new Promise<void>((resolve) => {
        this.#resolve = resolve
      })
      this.#resolve = undefined
    }
    this.#woken = false
  }
}
