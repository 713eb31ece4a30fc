import { existsSync, readFileSync } from "node:fs"
import { mkdir, mkdtemp, open, readdir, rename, rm, stat } from "node:fs/promises"
import { homedir } from "node:os"
import { join } from "node:path"
import process from "node:process"
import { setTimeout as wait } from "node:timers/promises"

const lockPollMs = 200
/** A first download can take minutes on a slow line; after that somebody else's lock counts as abandoned. */
const longestWaitMs = 600_000

/** Where programs and class files of servers are kept: `MILLRACE_SERVERS_CACHE`, else a directory of this user. */
function cacheDirectory(): string {
  return process.env.MILLRACE_SERVERS_CACHE ?? join(homedir(), ".cache", "millrace", "servers")
}

/** The path of an entry, when it is there already. */
export function cachedEntry(name: string): string | undefined {
  const path = join(cacheDirectory(), name)
  return existsSync(path) ? path : undefined
}

/**
 * The directory of an entry, filled when it is missing. It is filled aside and renamed, so an entry is whole or absent; processes that want
 * the same one wait for the first.
 */
export async function cached(name: string, fill: (directory: string) => Promise<void>): Promise<string> {
  const path = join(cacheDirectory(), name)
  if (existsSync(path)) return path
  await mkdir(cacheDirectory(), { recursive: true })
  await using _lock = await lock(`${path}.lock`)
  if (existsSync(path)) return path
  await removeAbandoned(name)
  const aside = await mkdtemp(`${path}.part-${process.pid}-`)
  try {
    await fill(aside)
    await rename(aside, path)
  } catch (error) {
    await rm(aside, { recursive: true, force: true })
    // Two that both took an abandoned lock: the second finds the entry of the first.
    if (existsSync(path)) return path
    throw error
  }
  return path
}

/** A lock only saves doing the work twice; what makes an entry whole is the rename. */
async function lock(path: string): Promise<AsyncDisposable> {
  const until = performance.now() + longestWaitMs
  for (;;) {
    try {
      const file = await open(path, "wx")
      await file.writeFile(String(process.pid))
      await file.close()
      return { [Symbol.asyncDispose]: () => rm(path, { force: true }) }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
    }
    if (performance.now() > until || (await isAbandoned(path))) await rm(path, { force: true })
    else await wait(lockPollMs)
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  try {
    const owner = readFileSync(path, "utf8")
    // Between its creation and its first byte a lock has no owner yet.
    if (owner === "") return performance.timeOrigin + performance.now() - (await stat(path)).mtimeMs > 10_000
    return !isAlive(Number(owner))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false
    throw error
  }
}

/** Directories of processes that died while they filled them. */
async function removeAbandoned(name: string): Promise<void> {
  for (const entry of await readdir(cacheDirectory())) {
    if (!entry.startsWith(`${name}.part-`)) continue
    const owner = Number(entry.slice(`${name}.part-`.length).split("-")[0])
    if (owner !== process.pid && !isAlive(owner)) {
      await rm(join(cacheDirectory(), entry), { recursive: true, force: true })
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"
  }
}
