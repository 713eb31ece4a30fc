/** Disks that are soon full. */
import { spawnSync } from "node:child_process"
import { closeSync, fsyncSync, mkdtempSync, openSync, rmdirSync, rmSync, statfsSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { atEnd, type Owner } from "./trial-end.ts"

/** A file system in memory of 16 MiB, unmounted after the test. */
export function smallDisk(t: Owner): string {
  const directory = mkdtempSync(join(tmpdir(), "millrace-disk-"))
  const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=16m", "tmpfs", directory])
  if (mounted.status !== 0) {
    rmdirSync(directory)
    throw new Error(`mounting a small tmpfs failed: ${mounted.stderr}`)
  }
  atEnd(t, () => {
    const unmounted = spawnSync("umount", [directory])
    if (unmounted.status !== 0) spawnSync("umount", ["-l", directory])
    rmdirSync(directory)
  })
  return directory
}

/** Fills a disk to the last page but `leave` bytes; the answer frees it again. */
export function fill(directory: string, leave: number = 0): () => void {
  const path = join(directory, "filler")
  const file = openSync(path, "w")
  const { bavail, bsize } = statfsSync(directory)
  const chunk = new Uint8Array(4_096)
  try {
    for (let left = bavail * bsize - leave; left > 0; left -= chunk.length) writeSync(file, chunk)
    fsyncSync(file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error
  } finally {
    closeSync(file)
  }
  return () => rmSync(path)
}
