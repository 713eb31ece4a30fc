/** The rooms of the repository, and who may import whom. ARCHITECTURE.md draws the same arrows. */

/** One room: a package, or a folder of programs. */
export interface Room {
  /** From the root, with slashes. */
  readonly folder: string
  /** The name that other rooms import it by; absent for folders of programs, which nobody imports. */
  readonly name?: string
  /** Names of ours that it may import. */
  readonly imports: readonly string[]
  /** Names of ours that it may import dynamically only, so that a bundle holds what is used. */
  readonly importsLazily?: readonly string[]
  /** Names of ours that its tests may import besides. */
  readonly importsInTests?: readonly string[]
  /** Whether global time and chance are refused here. */
  readonly pure: boolean
}

const ground = ["@millrace/contract", "@millrace/runtime"]
const brokers = ["@millrace/iggy", "@millrace/kafka", "@millrace/nats"]
const drivers = ["@millrace/embedded", ...brokers]
const servers = "@millrace/servers"

/** Every room. One that is missing here fails the check. */
const rooms: readonly Room[] = [
  { folder: "packages/contract", name: "@millrace/contract", imports: [], pure: true },
  { folder: "packages/runtime", name: "@millrace/runtime", imports: [], pure: false },
  { folder: "packages/core", name: "@millrace/core", imports: ground, pure: true },
  {
    folder: "packages/millrace",
    name: "millrace",
    imports: [...ground, "@millrace/core", "@millrace/embedded"],
    importsLazily: brokers,
    pure: true,
  },
  { folder: "drivers/embedded", name: "@millrace/embedded", imports: ground, pure: true },
  { folder: "drivers/iggy", name: "@millrace/iggy", imports: ground, importsInTests: [servers], pure: true },
  { folder: "drivers/kafka", name: "@millrace/kafka", imports: ground, importsInTests: [servers], pure: true },
  { folder: "drivers/nats", name: "@millrace/nats", imports: ground, importsInTests: [servers], pure: true },
  {
    folder: "checks/conformance",
    name: "@millrace/conformance",
    imports: [...ground, "@millrace/core", ...drivers, servers, "millrace"],
    pure: false,
  },
  {
    folder: "checks/bench",
    name: "@millrace/bench",
    imports: [...ground, "@millrace/core", ...drivers, servers, "millrace"],
    pure: false,
  },
  {
    folder: "checks/simulator",
    name: "@millrace/simulator",
    imports: [...ground, "@millrace/core"],
    pure: false,
  },
  { folder: "checks/docs", imports: [], pure: false },
  { folder: "examples", imports: [servers, "millrace"], pure: false },
  { folder: "tools/servers", name: servers, imports: [], pure: false },
  { folder: "tools", imports: [servers], pure: false },
]

/** The room that a file lies in. */
export function roomOf(path: string): Room | undefined {
  return rooms.find(({ folder }) => path.startsWith(`${folder}/`))
}

/** Whether a name is one of ours. */
export function isOurs(name: string): boolean {
  return name === "millrace" || name.startsWith("@millrace/")
}

/** Tests, their support and trials: not published, and free to use real time. */
export function isTest(path: string): boolean {
  return /\.test\.[jt]s$|\.test-support\.ts$|\.child\.ts$|\/trials\//.test(path)
}
