/** What the child of `outage` answers to `usage` and `stop`; to `begin` and `check` it answers the message itself, when it is done. */
export interface OutageReport {
  /** Sends that were accepted since the start. */
  readonly sent: number
  /** User and system time of the process since its start. */
  readonly cpuMicros: number
  /** The longest time that a send waited to be accepted, in ms. */
  readonly longestMs: number
}
