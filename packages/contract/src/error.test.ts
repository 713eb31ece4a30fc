import assert from "node:assert/strict"
import { extname } from "node:path"
import { test } from "node:test"
import {
  ClosedError,
  DiskFullError,
  errorFromWire,
  errorToWire,
  InvalidError,
  MillraceError,
  NotFoundError,
  StorageError,
  TimeoutError,
} from "./error.ts"

test("a kind says what may be done next, unless the thrower knows better", () => {
  const full = new DiskFullError("no room")
  assert.deepEqual([full.kind, full.retryable, full.outcome], ["disk-full", true, "rejected"])
  const late = new TimeoutError("late")
  assert.deepEqual([late.retryable, late.outcome], [true, "unknown"])
  assert.equal(new TimeoutError("never sent", { outcome: "rejected" }).outcome, "rejected")
})

test("instanceof tells the kinds apart", () => {
  const closed = new ClosedError("closed")
  assert.ok(closed instanceof ClosedError && closed instanceof InvalidError && closed instanceof MillraceError)
  const invalid = new InvalidError("bad")
  assert.ok(!((invalid as unknown) instanceof ClosedError))
  assert.ok(!((new Error("x") as unknown) instanceof MillraceError))
  assert.ok(!((undefined as unknown) instanceof MillraceError))
})

test("a second copy of the package recognises the errors of the first", async () => {
  const copy = (await import(
    `${import.meta.resolve(`./error${extname(import.meta.url)}`)}?copy`
  )) as typeof import("./error.ts")
  const foreign = new copy.NotFoundError("gone")
  assert.ok(foreign instanceof NotFoundError)
  assert.ok(foreign instanceof MillraceError)
  assert.ok(!((foreign as unknown) instanceof InvalidError))
})

test("a user's own subclass is recognised by its prototype alone", () => {
  class Own extends InvalidError {}
  assert.ok(new Own("x") instanceof Own)
  assert.ok(!((new InvalidError("x") as unknown) instanceof Own))
})

test("an error that crosses a thread keeps all but its stack", () => {
  const context = { stream: "s", topic: "t", partition: 3, offset: 2n ** 60n }
  const error = new NotFoundError('topic "s/t" does not exist', { context, cause: new Error("row missing") })
  const back = errorFromWire(structuredClone(errorToWire(error)))
  assert.ok(back instanceof NotFoundError)
  assert.deepEqual(
    [back.name, back.message, back.retryable, back.outcome, back.context],
    [error.name, error.message, error.retryable, error.outcome, context],
  )
  assert.equal(back.cause, "Error: row missing")
  assert.ok(errorFromWire(errorToWire(new RangeError("odd"))) instanceof StorageError)
})
