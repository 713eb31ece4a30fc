/** A mail server as they are: busy now and then, and some mailboxes are not there. */

/** One mail, as it lies in the topic. */
export interface Mail {
  readonly to: string
  readonly text: string
}

/** The server will never take this mail. Not `retryable`: the queue does not try it again. */
class UnknownMailboxError extends Error {
  readonly retryable = false
}

/** Takes the second attempt of each mail at the latest, when it has the mailbox. */
export class MailServer {
  readonly #mailboxes: Set<string>
  readonly #refused = new Set<string>()
  #calls = 0

  constructor(mailboxes: Iterable<string>) {
    this.#mailboxes = new Set(mailboxes)
  }

  /** From now on there is a mailbox for this address. */
  open(address: string): void {
    this.#mailboxes.add(address)
  }

  /** @throws UnknownMailboxError; Error when it is busy, as at every third call */
  deliver({ to, text }: Mail): void {
    if (!this.#mailboxes.has(to)) throw new UnknownMailboxError(`there is no mailbox ${to}`)
    const mail = `${to}: ${text}`
    if (++this.#calls % 3 !== 0 || this.#refused.has(mail)) return
    this.#refused.add(mail)
    throw new Error("the mail server is busy")
  }
}
