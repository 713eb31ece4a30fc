import assert from "node:assert/strict"
import test from "node:test"
import { parseTrace } from "./strace-trace.ts"

const x = (text: string): string =>
  Array.from(Buffer.from(text), (b) => `\\x${b.toString(16).padStart(2, "0")}`).join("")
const file = `<${x("/s/log.db")}>`

test("a trace becomes events, in the order in which the calls came back", () => {
  const events = parseTrace(
    [
      `10 openat(AT_FDCWD<${x("/")}>, "${x("/s/log.db")}", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 5${file}`,
      `10 pwrite64(5${file}, "${x("abc")}", 3, 16384) = 3`,
      `11 fsync(5${file} <unfinished ...>`,
      `10 pwrite64(5${file}, "${x("late")}", 4, 0) = 4`,
      `11 <... fsync resumed>) = 0`,
      `10 write(1<${x("pipe:[77]")}>, "${x("ack 1\n")}", 6) = 6`,
      `10 ftruncate(5${file}, 10) = 0`,
      `10 unlink("${x("/s/log.db-journal")}") = 0`,
      `10 unlink("${x("/s/none")}") = -1 ENOENT (No such file or directory)`,
      `10 rename("${x("/s/a")}", "${x("/s/b")}") = 0`,
      `10 mkdir("${x("/s/d")}", 0777) = 0`,
      `10 pwrite64(9<${x("/other")}>, "${x("no")}", 2, 0) = 2`,
      "10 +++ exited with 0 +++",
    ].join("\n"),
    { root: "/s" },
  )
  assert.deepEqual(
    events.map((event) => ("data" in event ? { ...event, data: Buffer.from(event.data).toString() } : event)),
    [
      { kind: "create", path: "/s/log.db", truncate: false },
      { kind: "write", path: "/s/log.db", offset: 16384, data: "abc" },
      { kind: "write", path: "/s/log.db", offset: 0, data: "late" },
      { kind: "sync", path: "/s/log.db", since: 2 },
      { kind: "mark", text: "ack 1\n" },
      { kind: "resize", path: "/s/log.db", size: 10, shrink: true },
      { kind: "remove", path: "/s/log.db-journal" },
      { kind: "rename", path: "/s/a", to: "/s/b" },
      { kind: "mkdir", path: "/s/d" },
    ],
  )
})

test("a mark counts from the moment at which it is told, not from when telling ended", () => {
  const events = parseTrace(
    [
      `10 write(1<${x("socket:[7]")}>, "${x("ack")}", 3 <unfinished ...>`,
      `11 fdatasync(5${file}) = 0`,
      "10 <... write resumed>) = 3",
    ].join("\n"),
    { root: "/s" },
  )
  assert.deepEqual(events, [
    { kind: "mark", text: "ack" },
    { kind: "sync", path: "/s/log.db", since: 1 },
  ])
})

test("plain writes go where the descriptor stands, and a write that was cut short in the trace is refused", () => {
  const opened = `10 openat(AT_FDCWD<${x("/")}>, "${x("/s/log.db")}", O_RDWR|O_CREAT, 0644) = 5${file}`
  const events = parseTrace(
    [
      opened,
      `10 write(5${file}, "${x("ab")}", 2) = 2`,
      `10 writev(5${file}, [{iov_base="${x("c")}", iov_len=1}, {iov_base="${x("d")}", iov_len=1}], 2) = 2`,
      `10 lseek(5${file}, 9, SEEK_SET) = 9`,
      `10 write(5${file}, "${x("e")}", 1) = 1`,
    ].join("\n"),
    { root: "/s" },
  )
  assert.deepEqual(
    events.flatMap((event) => (event.kind === "write" ? [[event.offset, Buffer.from(event.data).toString()]] : [])),
    [
      [0, "ab"],
      [2, "cd"],
      [9, "e"],
    ],
  )
  assert.throws(
    () => parseTrace(`${opened}\n10 pwrite64(5${file}, "${x("ab")}"..., 9, 0) = 9`, { root: "/s" }),
    /a write of 9 bytes .* was traced with 2/,
  )
})
