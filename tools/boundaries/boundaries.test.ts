import assert from "node:assert/strict"
import { test } from "node:test"
import { findCycles } from "./cycles.ts"
import { checkGlobals } from "./global-rules.ts"
import { checkImports } from "./import-rules.ts"
import { readFacts } from "./source-facts.ts"

const declared = { room: ["nats"], root: ["fast-check"] }

function importsOf(path: string, text: string): string[] {
  return checkImports(readFacts(path, text), declared).map(({ line, message }) => `${line}: ${message}`)
}

function globalsOf(path: string, text: string): string[] {
  return checkGlobals(readFacts(path, text)).map(({ message }) => message)
}

const core = "packages/core/src/producer/sender.ts"

test("the arrows that the design draws are allowed", () => {
  assert.deepEqual(
    importsOf(
      core,
      `import { x } from "@millrace/contract"
       import type { Clock } from "@millrace/runtime"
       import { y } from "./accumulator.ts"
       import { z } from "../record/message.ts"
       import { zlib } from "node:zlib"`,
    ),
    [],
  )
  assert.deepEqual(importsOf("packages/millrace/src/drivers.ts", `import { d } from "@millrace/embedded"`), [])
  assert.deepEqual(
    importsOf("checks/conformance/src/a.test.ts", `import fc from "fast-check"; import { connect } from "millrace"`),
    [],
  )
})

const forbidden: readonly (readonly [name: string, path: string, text: string, message: RegExp])[] = [
  [
    "core never imports a driver",
    core,
    `import { d } from "@millrace/embedded"`,
    /1: "@millrace\/embedded" is behind a wall: packages\/core may import @millrace\/contract, @millrace\/runtime/,
  ],
  ["core's tests neither", "packages/core/src/a.test.ts", `import { d } from "@millrace/embedded"`, /behind a wall/],
  [
    "a driver never imports core",
    "drivers/embedded/src/session.ts",
    `import { c } from "@millrace/core"`,
    /behind a wall/,
  ],
  [
    "contract imports nothing of ours",
    "packages/contract/src/a.ts",
    `import type { Clock } from "@millrace/runtime"`,
    /may import nothing of ours/,
  ],
  [
    "runtime imports nothing of ours",
    "packages/runtime/src/a.ts",
    `export * from "@millrace/contract"`,
    /may import nothing of ours/,
  ],
  [
    "examples use millrace alone",
    "examples/flights/main.ts",
    `import { c } from "@millrace/core"`,
    /may import @millrace\/servers, millrace/,
  ],
  ["import types count", core, `export type D = import("@millrace/embedded").D`, /behind a wall/],
  ["dynamic imports count", core, `\n\nvoid import("@millrace/embedded")`, /3: .*behind a wall/],
  [
    "no path past the exports",
    core,
    `import { x } from "@millrace/contract/src/error.ts"`,
    /goes past the exports: import "@millrace\/contract"/,
  ],
  [
    "no relative way into another room",
    core,
    `import { x } from "../../../contract/src/error.ts"`,
    /leaves the room packages\/core: import "@millrace\/contract"/,
  ],
  ["nobody imports an index.ts inside", core, `import { x } from "../index.ts"`, /list of exports/],
  ["a room does not import itself by name", core, `import { x } from "@millrace/core"`, /this room itself/],
  ["undeclared packages", core, `import lodash from "lodash/fp"`, /"lodash" is not a dependency of packages\/core/],
  ["tools of tests in what is published", core, `import fc from "fast-check"`, /"fast-check" is not a dependency/],
  ["modules of Node without node:", core, `import fs from "fs"`, /write "node:fs"/],
  ["imports that cannot be followed", core, "const m = await import(name)", /computed name/],
  ["a folder that the table does not know", "packages/other/src/a.ts", "", /in no room/],
]

for (const [name, path, text, message] of forbidden) {
  test(`refused: ${name}`, () => {
    const found = importsOf(path, text)
    assert.equal(found.length, 1, found.join("\n"))
    assert.match(found[0] as string, message)
  })
}

const globals: readonly (readonly [text: string, message: RegExp])[] = [
  ["const t = Date.now()", /Date\.now .*nowMicros/],
  ["const t = new Date()", /new Date\(\) .*nowMicros/],
  ["const t = Date()", /Date\(\) .*nowMicros/],
  ["const t = performance.now()", /performance\.now .*monotonicMs/],
  ["const t = process.hrtime.bigint()", /process\.hrtime .*monotonicMs/],
  ["const r = Math.random()", /Math\.random .*uint32/],
  ["const r = Math['random']()", /Math\.random .*uint32/],
  ["setTimeout(() => {}, 5)", /setTimeout .*setTimer/],
  ["const later = setImmediate", /setImmediate .*setTimer/],
  ["globalThis.setInterval(() => {}, 5)", /setInterval .*setTimer/],
  ["const s = AbortSignal.timeout(5)", /AbortSignal\.timeout .*setTimer/],
  ["const id = crypto.randomUUID()", /randomUUID .*uint32/],
  [`import { setTimeout as wait } from "node:timers/promises"`, /"node:timers\/promises" .*setTimer/],
  [`import { randomBytes } from "node:crypto"`, /randomBytes of "node:crypto" .*uint32/],
]

for (const [text, message] of globals) {
  test(`refused outside packages/runtime: ${text}`, () => {
    const found = globalsOf(core, text)
    assert.ok(found.length > 0)
    for (const line of found) assert.match(line, message)
    for (const free of [
      "packages/runtime/src/clock.ts",
      "packages/core/src/a.test.ts",
      "checks/bench/src/a.ts",
      "examples/a/b.ts",
    ]) {
      assert.deepEqual(globalsOf(free, text), [], free)
    }
  })
}

test("what only looks like global time or chance is let through", () => {
  assert.deepEqual(
    globalsOf(
      core,
      `// Date.now() and Math.random()
       const text = "setTimeout(1)"
       const at = new Date(5)
       clock.setTimeout(5)
       const options = { setTimeout: 1, now: performance }
       interface Host { setImmediate(): void }
       class Fake { setInterval = 1; setTimeout() {} }
       import { createHash } from "node:crypto"
       import type { webcrypto } from "node:crypto"`,
    ),
    [],
  )
})

test("a cycle is found once, at the import that closes it", () => {
  const files = {
    "tools/a.ts": `import "./b.ts"`,
    "tools/b.ts": `\nimport "./c.ts"`,
    "tools/c.ts": `export * from "./a.ts"`,
    "tools/d.ts": `import "./a.ts"`,
  }
  const found = findCycles(Object.entries(files).map(([path, text]) => readFacts(path, text)))
  assert.deepEqual(
    found.map(({ path, message }) => [path, message.split(": ")[1]]),
    [["tools/c.ts", "tools/a.ts → tools/b.ts → tools/c.ts → tools/a.ts"]],
  )
})

test("imports that do not remain when the program runs make no cycle", () => {
  const files = {
    "tools/a.ts": `import type { B } from "./b.ts"`,
    "tools/b.ts": `import { A } from "./a.ts"; import { type C } from "./c.ts"`,
    "tools/c.ts": `const b = () => import("./b.ts")`,
  }
  assert.deepEqual(findCycles(Object.entries(files).map(([path, text]) => readFacts(path, text))), [])
})

test("a file that does not parse is an error, not a pass", () => {
  assert.throws(() => readFacts("tools/a.ts", "const = 5"), /tools\/a\.ts: /)
})
