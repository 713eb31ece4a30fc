/** Every command as a list, for the server's side and for tests of recorded exchanges. */
import type { Command } from "./command.ts"
import * as byName from "./commands.ts"

/** A command whose types are known to whoever looks at its code. */
export type AnyCommand = Command<unknown, unknown>

/** In the order of their codes. */
export const commands: readonly AnyCommand[] = Object.values(byName as unknown as Record<string, AnyCommand>).toSorted(
  (one, other) => one.code - other.code,
)
