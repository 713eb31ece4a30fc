import assert from "node:assert/strict"
import { test } from "node:test"
import type { OptionKind } from "@millrace/contract"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { readConnectionOptions } from "./connection-options.ts"

const table: Record<string, OptionKind> = {
  wait: "duration",
  cache: "size",
  shards: "count",
  strict: "flag",
  label: "text",
}

function read(name: string, text: string): unknown {
  return readConnectionOptions(new Map([[name, text]]), "file", table)[name]
}

const good: readonly (readonly [name: string, text: string, value: number | boolean | string])[] = [
  ["wait", "0", 0],
  ["wait", "250ms", 250],
  ["wait", "5s", 5_000],
  ["wait", "1m", 60_000],
  ["wait", "1h", 3_600_000],
  ["wait", "1d", 86_400_000],
  ["wait", "2147483647ms", 2_147_483_647],
  ["cache", "512", 512],
  ["cache", "0", 0],
  ["cache", "512B", 512],
  ["cache", "64KB", 64_000],
  ["cache", "64KiB", 65_536],
  ["cache", "1MiB", 1_048_576],
  ["cache", "2GB", 2_000_000_000],
  ["shards", "0", 0],
  ["shards", "9007199254740991", Number.MAX_SAFE_INTEGER],
  ["strict", "true", true],
  ["strict", "false", false],
  ["label", "", ""],
  ["label", "5s", "5s"],
]

for (const [name, text, value] of good) {
  test(`${name}=${text} is ${JSON.stringify(value)}`, () => assert.equal(read(name, text), value))
}

const bad: readonly (readonly [name: string, text: string])[] = [
  ["wait", "5"],
  ["wait", "-5s"],
  ["wait", "5 s"],
  ["wait", "1.5s"],
  ["wait", "5S"],
  ["wait", "5min"],
  ["wait", ""],
  ["wait", "2147483648ms"],
  ["wait", "25d"],
  ["wait", "5constructor"],
  ["cache", "1mib"],
  ["cache", "-1"],
  ["cache", "1e3"],
  ["cache", "9007199254740993"],
  ["cache", "9999999TiB"],
  ["cache", "1toString"],
  ["shards", "1.0"],
  ["shards", "+1"],
  ["shards", "0x10"],
  ["shards", "9007199254740992"],
  ["strict", "yes"],
  ["strict", "1"],
  ["strict", ""],
]

for (const [name, text] of bad) {
  test(`${name}=${text} is refused, and the message names option, value and what is allowed`, () => {
    assert.throws(
      () => read(name, text),
      (error) =>
        error instanceof InvalidError &&
        error.message.includes(`option "${name}"`) &&
        error.message.includes(JSON.stringify(text)) &&
        error.message.includes("it must be"),
    )
  })
}

test("an unknown option is refused with the list of the known ones, and its value is not shown", () => {
  assert.throws(
    () => read("wiat", "hunter2"),
    (error) =>
      error instanceof InvalidError &&
      /unknown option "wiat".*wait, cache, shards, strict, label/.test(error.message) &&
      !error.message.includes("hunter2"),
  )
  assert.throws(
    () => readConnectionOptions(new Map([["a", "1"]]), "memory", {}),
    /memory: connection string takes no options/,
  )
})

test("names that every object has are unknown like any other", () => {
  for (const name of ["constructor", "__proto__", "toString"]) assert.throws(() => read(name, "1"), InvalidError)
})

test("every duration and size that can be written is read as what it says", () => {
  const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const
  fc.assert(
    fc.property(fc.nat({ max: 500 }), fc.constantFrom("ms", "s", "m", "h"), (count, unit) => {
      assert.equal(read("wait", `${count}${unit}`), count * units[unit])
    }),
  )
  fc.assert(
    fc.property(fc.nat({ max: 2 ** 31 - 1 }), (count) => {
      assert.equal(read("cache", String(count)), count)
      assert.equal(read("cache", `${count}KiB`), count * 1024)
    }),
  )
})
