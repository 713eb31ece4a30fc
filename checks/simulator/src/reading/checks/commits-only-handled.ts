import type { ReadingCheck, StoreFact } from "../facts.ts"

/** What is stored never passes a record that nobody of the owner has handled. */
export const commitsOnlyHandled: ReadingCheck = {
  name: "a commit never passes an unhandled message",
  storing: (fact) => (fact.owner.semantics === "delivery" ? undefined : passed(fact)),
  // What is handed out is told to the store before the program looks at it.
  stored: (fact) => (fact.owner.semantics === "delivery" ? passed(fact) : undefined),
}

function passed({ program, owner, entry, ledger }: StoreFact): string | undefined {
  if (owner.semantics === "onRead") return undefined
  const { prefix } = ledger
  if (entry.offset <= BigInt(prefix)) return undefined
  return `program ${program.id} stores ${entry.offset} for ${entry.topic}/${entry.partition}, and nobody has handled ${prefix}`
}
