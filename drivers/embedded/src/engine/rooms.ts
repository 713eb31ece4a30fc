/** The parts of the engine that own tables and commands. */
import { append } from "./append.ts"
import { catalogCommands } from "./catalog.ts"
import type { Command, Room } from "./command.ts"
import { systemProcesses } from "./group-process.ts"
import { groupRoom } from "./groups.ts"
import { locate, watermarks } from "./locate.ts"
import { offsetRoom } from "./offsets.ts"
import { identify } from "./producers.ts"
import { Queues, queueRoom } from "./queues.ts"
import type { Readers } from "./readers.ts"
import { logSchema, storeFormat } from "./schema.ts"
import { SmallState, stateRoom } from "./state.ts"
import { transactionRoom } from "./transactional.ts"

const processes = systemProcesses()

const ownRooms: readonly Room[] = [offsetRoom, groupRoom(processes), queueRoom, stateRoom, transactionRoom]

/** What each format of the store added, the first one first. A new store gets all of it. */
export const storeSchemas: readonly string[] = Array.from({ length: storeFormat }, (_, i) => {
  const added = ownRooms.filter(({ format }) => (format ?? 1) === i + 1).map(({ schema }) => schema)
  return (i === 0 ? [logSchema, ...added] : added).join("\n")
})

/** All commands by name. */
export function commandRegistry(readers: Readers): ReadonlyMap<string, Command> {
  const commands: Command[] = [
    ...catalogCommands(ownRooms),
    append,
    identify,
    locate,
    watermarks,
    ...readers.commands,
    ...new Queues(processes).commands,
    ...new SmallState().commands,
    ...ownRooms.flatMap((room) => room.commands),
  ]
  return new Map(commands.map((command) => [command.name, command]))
}
