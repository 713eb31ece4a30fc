/** What a program has tried to do in one transaction, and what it was told of it. */
export class TransactionFact {
  readonly id: number
  readonly transactionalId: string
  /** Numbers of the records that were accepted. */
  readonly numbers: number[] = []
  /** Somebody was told that it is committed, or that it is aborted. */
  isCommitted = false
  isAborted = false
  /** How often its commit was asked for, and how often that was refused for certain. */
  asked = 0
  refused = 0

  constructor(id: number, transactionalId: string) {
    this.id = id
    this.transactionalId = transactionalId
  }

  /** Whether it may be there, as far as anybody was told. */
  get mayBeThere(): boolean {
    return this.isCommitted || this.asked > this.refused
  }
}

/** What a coordinator outside of the log has kept of prepared transactions: the token of each id. */
export interface KeptToken {
  readonly token: string
  readonly fact: TransactionFact
}
