import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "@millrace/contract"
import { encryptor } from "@millrace/core"
import type { ConnectOptions } from "./connect-settings.ts"
import { resolveSettings } from "./connect-settings.ts"

const url = "file:./data"

test("without anything else the defaults hold", () => {
  assert.deepEqual(resolveSettings(url, {}, {}), {
    url,
    connectTimeoutMs: 30_000,
    publishTimeoutMs: 60_000,
    publishRetries: 3,
    publishRetryBackoffMs: 250,
  })
})

test("options and variables each set what they name", () => {
  const signal = new AbortController().signal
  const options = {
    stream: "s",
    connectTimeoutMs: 1,
    publishTimeoutMs: 2,
    publishRetries: 0,
    publishRetryBackoffMs: 4,
    signal,
  }
  assert.deepEqual(resolveSettings(url, options, {}), { url, ...options })
  const environment = {
    MILLRACE_CONNECTION_STRING: "memory:",
    MILLRACE_STREAM: "s",
    MILLRACE_CONNECT_TIMEOUT_MS: "1",
    MILLRACE_PUBLISH_TIMEOUT_MS: "2",
    MILLRACE_PUBLISH_MAX_RETRIES: "0",
    MILLRACE_PUBLISH_RETRY_BACKOFF_MS: "2147483647",
  }
  assert.deepEqual(resolveSettings(undefined, {}, environment), {
    url: "memory:",
    stream: "s",
    connectTimeoutMs: 1,
    publishTimeoutMs: 2,
    publishRetries: 0,
    publishRetryBackoffMs: 2_147_483_647,
  })
})

test("an empty variable counts as not set", () => {
  assert.equal(resolveSettings(url, {}, { MILLRACE_CONNECTION_STRING: "", MILLRACE_PUBLISH_TIMEOUT_MS: "" }).url, url)
})

function refuses(options: unknown, environment: Record<string, string>, message: RegExp): void {
  assert.throws(
    () => resolveSettings(url, options as ConnectOptions, environment),
    (error) => error instanceof InvalidError && message.test(error.message),
  )
}

test("values out of range are refused and named with what is allowed", () => {
  for (const value of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2_147_483_648, "5", null, 5n]) {
    for (const name of ["connectTimeoutMs", "publishTimeoutMs", "publishRetryBackoffMs"]) {
      refuses({ [name]: value }, {}, new RegExp(`option "${name}" is ${String(value)}.*1 to 2147483647`))
    }
    if (value !== 0) refuses({ publishRetries: value }, {}, /option "publishRetries".*0 to 2147483647/)
  }
  for (const text of ["0", "-1", "1.5", "abc", " 5", "2147483648", "99999999999"]) {
    refuses({}, { MILLRACE_CONNECT_TIMEOUT_MS: text }, /MILLRACE_CONNECT_TIMEOUT_MS is ".*1 to 2147483647/)
  }
  refuses({}, { MILLRACE_PUBLISH_MAX_RETRIES: "-1" }, /MILLRACE_PUBLISH_MAX_RETRIES is "-1".*0 to/)
  refuses({ stream: 7 }, {}, /"stream" is a text, not number/)
  refuses({ signal: {} }, {}, /"signal" is an AbortSignal, not object/)
})

test("a value that differs between argument and environment is refused, naming both places", () => {
  refuses({ stream: "a" }, { MILLRACE_STREAM: "b" }, /"stream" is "a" but MILLRACE_STREAM is "b"/)
  refuses(
    { publishRetries: 1 },
    { MILLRACE_PUBLISH_MAX_RETRIES: "2" },
    /"publishRetries" is 1 but MILLRACE_PUBLISH_MAX_RETRIES is 2/,
  )
  assert.equal(resolveSettings(url, { stream: "a" }, { MILLRACE_STREAM: "a" }).stream, "a")
})

test("two connection strings are refused without showing either", () => {
  const other = "kafka://ann:secret@host"
  assert.throws(
    () => resolveSettings(url, {}, { MILLRACE_CONNECTION_STRING: other }),
    (error) =>
      error instanceof InvalidError &&
      /given to connect differs from.*MILLRACE_CONNECTION_STRING/.test(error.message) &&
      !/secret|\.\/data/.test(error.message),
  )
  assert.equal(resolveSettings(url, {}, { MILLRACE_CONNECTION_STRING: url }).url, url)
})

test("no connection string at all is refused with both ways to give one", () => {
  assert.throws(() => resolveSettings(undefined, {}, {}), /no connection string.*connect.*MILLRACE_CONNECTION_STRING/)
})

test("unknown options are refused with the list of the known ones", () => {
  refuses({ timeout: 5 }, {}, /unknown option "timeout": connect knows stream, connectTimeoutMs, .*signal/)
  refuses(null, {}, /are an object, not null/)
  refuses("file:./data", {}, /are an object, not string/)
})

test("an encryptor is passed on, and anything else in its place is refused before a connection is made", () => {
  const mine = encryptor({ current: "k", keys: { k: new Uint8Array(32) } })
  assert.equal(resolveSettings(url, { encryptor: mine }, {}).encryptor, mine)
  for (const wrong of [false, null, "key", { current: "k" }]) {
    assert.throws(() => resolveSettings(url, { encryptor: wrong as never }, {}), InvalidError)
  }
})
