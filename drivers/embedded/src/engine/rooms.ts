/** The parts of the engine that own tables and commands. */
import { append } from "./append.ts"
import { catalogCommands } from "./catalog.ts"
import type { Command, Room } from "./command.ts"
import { systemProcesses } from "./group-process.ts"
import { groupRoom } from "./groups.ts"
import { locate, watermarks } from "./locate.ts"
import { offsetRoom } from "./offsets.ts"
import { identify } from "./producers.ts"
import type { Readers } from "./readers.ts"
import { logSchema } from "./schema.ts"

const ownRooms: readonly Room[] = [offsetRoom, groupRoom(systemProcesses())]

/** Everything that is created in a new store. */
export const storeSchema: string = [logSchema, ...ownRooms.map(({ schema }) => schema)].join("\n")

/** All commands by name. */
export function commandRegistry(readers: Readers): ReadonlyMap<string, Command> {
  const commands: Command[] = [
    ...catalogCommands(ownRooms),
    append,
    identify,
    locate,
    watermarks,
    ...readers.commands,
    ...ownRooms.flatMap((room) => room.commands),
  ]
  return new Map(commands.map((command) => [command.name, command]))
}
