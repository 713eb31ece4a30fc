import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, readFileSync } from "node:fs"
import { describe, it } from "node:test"
import { systemProcesses } from "./group-process.ts"

const noProc = !existsSync("/proc/self/stat") && "no /proc here"

describe("the processes of this machine", () => {
  const processes = systemProcesses()
  const { self } = processes

  it("knows that this one runs", () => {
    assert.equal(self.pid, process.pid)
    assert.equal(processes.isGone(self), false)
    assert.equal(systemProcesses().isGone(self), false)
  })

  it("tells a process from an earlier one with the same number", {
    skip: self.started === "" && "no /proc here",
  }, () => {
    assert.equal(processes.isGone({ ...self, started: String(Number(self.started) - 1) }), true)
  })

  it("knows nothing of processes elsewhere, so they are not gone", () => {
    assert.equal(processes.isGone({ pid: 2 ** 22 + 1, started: "1", place: "elsewhere" }), false)
  })

  it("sees a child run and end", async (t) => {
    const child = spawn(process.execPath, ["-e", "process.stdin.resume()"], { stdio: ["pipe", "ignore", "ignore"] })
    t.after(() => child.kill("SIGKILL"))
    await once(child, "spawn")
    const identity = { pid: child.pid as number, started: startOf(child.pid as number), place: self.place }
    assert.equal(processes.isGone(identity), false)
    child.kill("SIGKILL")
    await once(child, "exit")
    assert.equal(processes.isGone(identity), true)
  })

  it("counts a process that only waits to be collected as gone", { skip: noProc }, async (t) => {
    // The shell starts a child, then becomes a program that never collects it.
    const parent = spawn("/bin/sh", ["-c", "sleep 600 & echo $!; exec cat"], { stdio: ["pipe", "pipe", "ignore"] })
    t.after(() => parent.kill("SIGKILL"))
    const lines: string[] = []
    parent.stdout.on("data", (bytes) => lines.push(String(bytes)))
    parent.stdin.write("become cat\n")
    while (!lines.join("").includes("become cat")) await once(parent.stdout, "data")
    const pid = Number.parseInt(lines.join(""), 10)
    const identity = { pid, started: startOf(pid), place: self.place }
    assert.equal(processes.isGone(identity), false)
    process.kill(pid, "SIGKILL")
    const deadline = performance.now() + 10_000
    while (!processes.isGone(identity) && performance.now() < deadline) {
      await new Promise((resolve) => setImmediate(resolve))
    }
    assert.equal(processes.isGone(identity), true)
    assert.ok(existsSync(`/proc/${pid}/stat`), "it is still there, uncollected")
  })
})

/** The start time as the kernel tells it, read apart from the code under test; empty without /proc. */
function startOf(pid: number): string {
  const stat = existsSync(`/proc/${pid}/stat`) ? readFileSync(`/proc/${pid}/stat`, "latin1") : ""
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? ""
}
