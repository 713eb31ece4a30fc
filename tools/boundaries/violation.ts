/** One broken rule at one place. */
export interface Violation {
  readonly path: string
  readonly line: number
  /** What is wrong, and what to write instead. */
  readonly message: string
}
