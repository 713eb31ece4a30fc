import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { embeddedDriver } from "@millrace/embedded"
import { parseConnectionString } from "./connection-string.ts"
import type { DriverEntry } from "./drivers.ts"
import { findDriver, targetOf } from "./drivers.ts"

const find = (text: string): DriverEntry => findDriver(parseConnectionString(text))

test("file: and memory: lead to the embedded driver, with the directory as path", async () => {
  for (const [text, path] of [
    ["file:./data", "./data"],
    ["file:///data", "/data"],
    ["memory:", ""],
  ] as const) {
    const connection = parseConnectionString(text)
    const driver = await findDriver(connection).load()
    assert.equal(driver, embeddedDriver)
    const target = targetOf(connection, driver)
    assert.equal(target.path, path)
    assert.deepEqual(target.hosts, [])
    assert.ok(driver.schemes.includes(target.scheme))
  }
})

test("a broker's scheme loads its driver only when it is met", async () => {
  for (const scheme of ["kafka", "nats", "iggy"]) {
    const driver = await find(`${scheme}://host`).load()
    assert.deepEqual(driver.schemes, [scheme])
  }
})

test("an unknown scheme is refused with the list of those that are known", () => {
  assert.throws(
    () => find("redis://host"),
    (error) =>
      error instanceof InvalidError &&
      /unknown scheme "redis": known are file:, memory:, iggy:, kafka:, nats:/.test(error.message),
  )
  assert.throws(() => find("constructor:x"), InvalidError)
})

test("a target that does not fit its scheme is refused with the form to write", () => {
  assert.throws(() => find("file:"), /names a directory: write for example file:\.\/data/)
  assert.throws(() => find("memory:./data"), /nothing behind the colon/)
  assert.throws(() => find("memory://host"), /nothing behind the colon/)
  const entries = { broker: { target: "servers", load: () => Promise.resolve(embeddedDriver) } } as const
  assert.throws(
    () => findDriver(parseConnectionString("broker:host"), entries),
    /names servers: write broker:\/\/host:port/,
  )
  assert.equal(findDriver(parseConnectionString("broker://host"), entries), entries.broker)
})

test("an option that the driver does not know is refused with those it knows", () => {
  assert.throws(
    () => targetOf(parseConnectionString("file:./data?nosuch=1"), embeddedDriver),
    (error) =>
      error instanceof InvalidError &&
      error.message.includes('unknown option "nosuch"') &&
      Object.keys(embeddedDriver.options).every((name) => error.message.includes(name)),
  )
})
