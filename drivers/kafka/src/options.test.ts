import assert from "node:assert/strict"
import { test } from "node:test"
import type { ConnectTarget } from "@millrace/contract"
import { kafkaSettings } from "./options.ts"

const target: ConnectTarget = {
  scheme: "kafka",
  hosts: [{ host: "k1" }, { host: "k2", port: 9093 }],
  path: "",
  options: {},
}

test("a URL without options takes the defaults, and Kafka's port", () => {
  const settings = kafkaSettings(target)
  assert.deepEqual(settings.bootstrap, [
    { host: "k1", port: 9092 },
    { host: "k2", port: 9093 },
  ])
  assert.equal(settings.clientId, "millrace")
  assert.equal(settings.requestTimeoutMs, 30_000)
  assert.equal(settings.compression, "none")
  assert.equal(settings.groupProtocol, "auto")
})

test("options are taken as they are given", () => {
  const options = {
    clientId: "me",
    requestTimeout: 5_000,
    compression: "zstd",
    fetchMaxWait: 0,
    partitionFetchBytes: 4096,
    groupProtocol: "classic",
  }
  const settings = kafkaSettings({ ...target, options })
  assert.equal(settings.clientId, "me")
  assert.equal(settings.requestTimeoutMs, 5_000)
  assert.equal(settings.compression, "zstd")
  assert.equal(settings.fetch.fetchMaxWaitMs, 0)
  assert.equal(settings.fetch.partitionFetchBytes, 4096)
  assert.equal(settings.groupProtocol, "classic")
})

test("what cannot work is refused with what is allowed", () => {
  const refused = (more: Partial<ConnectTarget>, expected: object): void =>
    assert.throws(() => kafkaSettings({ ...target, ...more }), expected)
  refused(
    { options: { compression: "brotli" } },
    { kind: "invalid", message: /"brotli": none, gzip, snappy, lz4, zstd/ },
  )
  refused(
    { options: { groupProtocol: "share" } },
    { kind: "invalid", message: /groupProtocol is "share": auto, consumer, classic are allowed/ },
  )
  refused({ options: { requestTimeout: 0 } }, { kind: "invalid", message: /requestTimeout is 0: 1 to/ })
  refused({ options: { fetchMaxBytes: 2 ** 31 } }, { kind: "invalid", message: /fetchMaxBytes is 2147483648/ })
  refused({ username: "me" }, { kind: "unsupported", message: /does not log in yet/ })
  refused({ path: "/topic" }, { kind: "invalid", message: /"\/topic"/ })
  refused({ hosts: [] }, { kind: "invalid", message: /at least one broker/ })
})
