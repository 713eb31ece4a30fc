import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"

/**
 * When a consumer stores its progress by itself (seed 000, "Commit policies"; table 1.5, the column of the policy path). What is
 * stored is the handled prefix of each partition: a message is handled when the next one is asked for, or by `commit`.
 *
 * - `disabled`: never. Progress is what `commit` and `storeOffset` say.
 * - `polling`: when the next page is asked for, the prefix handled so far.
 * - `all`: once every message of a page is handled.
 * - `each`: every handled message, before the next one is handed out.
 *
 * All but `disabled` store the handled prefix on shutdown and before a partition is handed over to another member.
 */
export interface CommitPolicy {
  readonly kind: "disabled" | "polling" | "all" | "each"
}

const kinds = ["disabled", "polling", "all", "each"] as const

/** @throws InvalidError that lists the kinds. */
export function checkCommitPolicy(what: string, policy: CommitPolicy): CommitPolicy {
  const kind = (policy as { readonly kind?: unknown } | null)?.kind
  const known = kinds.find((name) => name === kind)
  if (known !== undefined && Object.keys(policy).length === 1) return { kind: known }
  const given =
    known === undefined ? `commitPolicy.kind is ${shown(kind)}` : `commitPolicy ${shown(kind)} takes no other field`
  throw new InvalidError(
    `${what}: ${given}; it must be { kind } with one of ${kinds.map((name) => `"${name}"`).join(", ")}`,
  )
}
