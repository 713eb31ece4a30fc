import assert from "node:assert/strict"
import { test } from "node:test"
import { AuthenticationError, type ConnectTarget, InvalidError, UnsupportedError } from "@millrace/contract"
import { readTarget } from "./target.ts"

const plain: ConnectTarget = {
  scheme: "iggy",
  hosts: [{ host: "h", port: 1 }],
  path: "",
  username: "u",
  password: "p",
  options: {},
}

test("a user with a password, or a token; the port is 8090 where none is given", () => {
  assert.deepEqual(readTarget(plain).credentials, { username: "u", password: "p" })
  const { password: _, ...alone } = plain
  assert.deepEqual(readTarget({ ...alone, username: "token", hosts: [{ host: "h" }] }), {
    addresses: [{ host: "h", port: 8090 }],
    credentials: { token: "token" },
    heartbeatMs: 5_000,
    requestTimeoutMs: 30_000,
    version: undefined,
  })
})

test("without a user it says how one is given", () => {
  const { username: _, password: __, ...anonymous } = plain
  assert.throws(
    () => readTarget(anonymous),
    (error: Error) => error instanceof AuthenticationError && /iggy:\/\/user:password@host:port/.test(error.message),
  )
})

test("options are read, and nonsense is refused", () => {
  const options = { heartbeat_interval: 1_000, request_timeout: 2_000, protocol: "0.12", tls: false }
  const target = readTarget({ ...plain, options })
  assert.deepEqual([target.heartbeatMs, target.requestTimeoutMs, target.version], [1_000, 2_000, "0.12"])
  assert.throws(() => readTarget({ ...plain, options: { tls: true } }), UnsupportedError)
  assert.throws(() => readTarget({ ...plain, options: { protocol: "1" } }), InvalidError)
  assert.throws(() => readTarget({ ...plain, options: { request_timeout: 0 } }), InvalidError)
  assert.throws(() => readTarget({ ...plain, path: "/somewhere" }), InvalidError)
  assert.throws(() => readTarget({ ...plain, hosts: [] }), InvalidError)
})
