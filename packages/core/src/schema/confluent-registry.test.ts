/** A registry behind Confluent's REST interface: https://docs.confluent.io/platform/current/schema-registry/develop/api.html */
import assert from "node:assert/strict"
import { after, before, beforeEach, describe, test } from "node:test"
import {
  AuthenticationError,
  CancelledError,
  ConnectionError,
  InvalidError,
  MillraceError,
  NotFoundError,
  PermissionError,
  TimeoutError,
} from "@millrace/contract"
import { type ConfluentOptions, confluentRegistry } from "./confluent-registry.ts"
import { FakeRegistry } from "./fake-registry.test-support.ts"
import { IncompatibleSchemaError } from "./incompatible.ts"
import { avroRecord } from "./rig.test-support.ts"
import type { SchemaRegistry } from "./schema.ts"
import { schemaCodec } from "./schema-codec.ts"

let server: FakeRegistry
before(async () => {
  server = await FakeRegistry.start()
})
after(async () => {
  await server[Symbol.asyncDispose]()
})
beforeEach(() => {
  server.answer = undefined
  server.seen.length = 0
})

const open = (options?: ConfluentOptions): SchemaRegistry =>
  confluentRegistry(server.url, { retries: 0, retryBackoffMs: 1, ...options })
const order = { type: "avro", schema: avroRecord("Order", [{ name: "id", type: "string" }]) } as const
const seen = (): string[] => server.seen.map(({ method, url }) => `${method} ${url}`)

describe("what is asked and understood", () => {
  test("register, get, find, versions, list", async () => {
    const registry = open()
    const id = await registry.register("orders/value", order)
    assert.deepEqual(seen(), ["POST /subjects/orders%2Fvalue/versions"])
    assert.deepEqual(server.seen[0]?.body, { schema: order.schema })
    assert.equal(server.seen[0]?.headers["content-type"], "application/vnd.schemaregistry.v1+json")
    assert.deepEqual(await registry.get(id), { id, type: "avro", schema: order.schema, references: [] })
    const version = { id, type: "avro", schema: order.schema, references: [], subject: "orders/value", version: 1 }
    assert.deepEqual(await registry.find("orders/value", order), version)
    assert.deepEqual(await registry.version("orders/value", 1), version)
    assert.deepEqual(await registry.version("orders/value", "latest"), version)
    assert.deepEqual(await registry.versions("orders/value"), [version])
    const json = { type: "json-schema", schema: '{"type":"object"}' } as const
    const other = await registry.register("other", json)
    assert.deepEqual(server.seen.at(-1)?.body, { schema: json.schema, schemaType: "JSON" })
    assert.deepEqual(await registry.list(), [
      { id, type: "avro", schema: order.schema, references: [] },
      { id: other, ...json, references: [] },
    ])
    assert.deepEqual(await registry.subjects(), ["orders/value", "other"])
  })

  test("a schema is asked for once, by id and by version, also by several at once; what failed is asked again", async () => {
    const registry = open()
    const id = await registry.register("once", order)
    server.seen.length = 0
    await Promise.all([registry.get(id), registry.get(id), registry.version("once", 1), registry.version("once", 1)])
    await registry.get(id)
    assert.equal(server.seen.length, 2)
    await assert.rejects(registry.get(4711), NotFoundError)
    await assert.rejects(registry.get(4711), NotFoundError)
    assert.equal(server.seen.length, 4)
    await registry.version("once", "latest")
    await registry.version("once", "latest")
    assert.equal(server.seen.length, 6, "the latest changes")
  })

  test("what was not used for longest is forgotten first", async () => {
    const registry = open({ cacheSize: 2 })
    const ids: number[] = []
    for (const name of ["A", "B", "C"])
      ids.push(await registry.register(name, { type: "avro", schema: avroRecord(name, []) }))
    const [a, b, c] = ids as [number, number, number]
    server.seen.length = 0
    for (const id of [a, b, a, c, a, b]) await registry.get(id)
    assert.deepEqual(
      seen(),
      [a, b, c, b].map((id) => `GET /schemas/ids/${id}`),
    )
  })

  test("the compatibility of a subject, or that of all", async () => {
    const registry = open()
    assert.equal(await registry.compatibility("c"), "backward")
    await registry.setCompatibility("c", "fullTransitive")
    assert.deepEqual(server.seen.at(-1)?.body, { compatibility: "FULL_TRANSITIVE" })
    assert.equal(await registry.compatibility("c"), "fullTransitive")
    await registry.setCompatibility(undefined, "none")
    assert.equal(await registry.compatibility(), "none")
    await registry.setCompatibility(undefined, "backward")
  })

  test("a check, with the registry's reasons", async () => {
    const registry = open()
    await registry.register("checked", order)
    server.answer = ({ url }) =>
      url.startsWith("/compatibility")
        ? [
            200,
            {
              is_compatible: false,
              messages: [
                "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'paid' at path '/fields/1' in the new schema has no default value and is missing in the old schema', additionalInfo:'paid'}",
                "{oldSchemaVersion: 3}",
                `{oldSchema: '{"type":"record"}'}`,
                "{compatibility: 'BACKWARD'}",
              ],
            },
          ]
        : undefined
    const report = await registry.check("checked", order)
    assert.equal(server.seen.at(-1)?.url, "/compatibility/subjects/checked/versions?verbose=true")
    assert.equal(report.compatible, false)
    assert.deepEqual(
      report.incompatibilities.map(({ version, path }) => [version, path]),
      [[3, "/fields/1"]],
    )
    server.answer = undefined
    assert.equal((await registry.check("checked", order, { version: 1 })).compatible, true)
    assert.equal((await registry.check("never seen", order)).compatible, true)
    await assert.rejects(registry.check("checked", order, { version: 7 }), /version 7/)
    await assert.rejects(registry.check("never seen", order, { version: 1 }), /never seen/)
    // A registry that compares with one version only.
    server.answer = ({ url }) =>
      /versions\?/.test(url) ? [404, { error_code: 404, message: "HTTP 404 Not Found" }] : undefined
    assert.equal((await registry.check("checked", order)).compatible, true)
    assert.equal(server.seen.at(-1)?.url, "/compatibility/subjects/checked/versions/latest?verbose=true")
  })

  test("references, there and back, and codecs over them", async () => {
    const registry = open()
    await registry.register("zip", { type: "avro", schema: avroRecord("Zip", [{ name: "code", type: "string" }]) })
    const id = await registry.register("person", {
      type: "avro",
      schema: avroRecord("Person", [{ name: "zip", type: "Zip" }]),
      references: [{ name: "Zip", subject: "zip", version: 1 }],
    })
    const { references } = Object(server.seen.at(-1)?.body) as { readonly references?: unknown }
    assert.deepEqual(references, [{ name: "Zip", subject: "zip", version: 1 }])
    const codec = await schemaCodec(open(), id)
    const payload = codec.encode({ zip: { code: "a" } })
    assert.deepEqual([...payload], [0, 0, 0, 0, id, 2, 97])
    assert.equal((codec.decode(payload) as { readonly zip: { readonly code: string } }).zip.code, "a")
  })

  test("a path below the host, credentials and headers", async () => {
    const below = confluentRegistry(`${server.url.replace("//", "//user:p%40ss@")}/registry/`, {
      headers: { "x-tenant": "7" },
    })
    server.answer = () => [200, []]
    await below.subjects()
    assert.deepEqual(seen(), ["GET /registry/subjects"])
    assert.equal(server.seen[0]?.headers.authorization, `Basic ${btoa("user:p@ss")}`)
    assert.equal(server.seen[0]?.headers["x-tenant"], "7")
    await open({ auth: { token: "abc" } }).subjects()
    assert.equal(server.seen.at(-1)?.headers.authorization, "Bearer abc")
    await open({ auth: { username: "ü", password: "" } }).subjects()
    assert.equal(server.seen.at(-1)?.headers.authorization, `Basic ${Buffer.from("ü:").toString("base64")}`)
  })
})

describe("failures", () => {
  const failing = async (
    work: (registry: SchemaRegistry) => Promise<unknown>,
    status: number,
    body: unknown,
  ): Promise<MillraceError> => {
    server.answer = () => [status, body]
    try {
      await work(open())
    } catch (error) {
      assert.ok(error instanceof MillraceError, String(error))
      return error
    }
    return assert.fail("it did not fail")
  }
  const get = (registry: SchemaRegistry): Promise<unknown> => registry.get(7)
  const register = (registry: SchemaRegistry): Promise<unknown> => registry.register("orders", order)

  test("not found: the schema, the subject, the version, by name", async () => {
    assert.match((await failing(get, 404, { error_code: 40403, message: "Schema 7 not found" })).message, /schema id 7/)
    const subject = await failing((registry) => registry.versions("s"), 404, {
      error_code: 40401,
      message: "Subject 's' not found.",
    })
    assert.ok(subject instanceof NotFoundError && /"s"/.test(subject.message))
    const version = await failing((registry) => registry.version("s", 3), 404, {
      error_code: 40402,
      message: "Version 3 not found.",
    })
    assert.ok(version instanceof NotFoundError && /version 3/.test(version.message))
    const reference = await failing(register, 404, { error_code: 40402, message: "Version 3 not found." })
    assert.ok(reference instanceof NotFoundError && /40402.*Version 3/.test(reference.message))
  })

  test("incompatible: the registry's reason", async () => {
    const error = await failing(register, 409, {
      error_code: 409,
      message: "Schema being registered is incompatible with an earlier schema",
    })
    assert.ok(error instanceof IncompatibleSchemaError)
    assert.match(error.message, /orders.*incompatible with an earlier schema/)
  })

  test("invalid: schema, version, compatibility", async () => {
    for (const [code, message] of [
      [42201, "Input schema is an invalid Avro schema"],
      [42203, "Invalid compatibility level"],
      [42206, "something that a later version knows"],
    ] as const) {
      const error = await failing(register, 422, { error_code: code, message })
      assert.ok(error instanceof InvalidError && error.message.includes(message) && error.context.errorCode === code)
    }
    assert.ok(
      (await failing((registry) => registry.version("s", 3), 422, { error_code: 42202, message: "x" })) instanceof
        NotFoundError,
    )
  })

  test("credentials and permissions, with or without JSON", async () => {
    assert.ok((await failing(get, 401, { error_code: 401, message: "Unauthorized" })) instanceof AuthenticationError)
    assert.ok((await failing(get, 401, "<html>Unauthorized</html>")) instanceof AuthenticationError)
    assert.ok((await failing(get, 403, { error_code: 40301, message: "no" })) instanceof PermissionError)
  })

  test("what may pass is retryable", async () => {
    for (const [status, kind] of [
      [500, "connection"],
      [502, "connection"],
      [504, "timeout"],
      [408, "timeout"],
      [429, "throttled"],
    ] as const) {
      for (const body of [{ error_code: 50001, message: "Error in the backend" }, "<html>Bad Gateway</html>", ""]) {
        const error = await failing(get, status, body)
        assert.deepEqual([error.kind, error.retryable], [kind, true], `${status}`)
      }
    }
  })

  test("what is no registry says so, with what it answered", async () => {
    for (const [status, body] of [
      [200, "<html>Welcome</html>"],
      [404, "<html>not here</html>"],
      [404, { detail: "not here" }],
      [200, ""],
    ] as const) {
      const error = await failing(get, status, body)
      assert.equal(error.kind, "protocol")
      assert.match(error.message, /check its URL/)
      assert.equal(error.retryable, false)
    }
    for (const body of [null, {}, [], { schema: 5 }]) assert.equal((await failing(get, 200, body)).kind, "protocol")
    assert.match((await failing(get, 200, { schema: "x", schemaType: "THRIFT" })).message, /"THRIFT"/)
    assert.ok((await failing(register, 200, { id: "1" })) instanceof InvalidError)
    for (const references of [[{}], [null]])
      assert.equal((await failing(get, 200, { schema: '"int"', references })).kind, "protocol")
  })

  test("secrets are in no message", async () => {
    server.answer = () => [500, "no"]
    const url = server.url.replace("//", "//user:secret@")
    const errors: Error[] = []
    await confluentRegistry(url, { retries: 0 })
      .get(1)
      .catch((error: Error) => errors.push(error))
    try {
      confluentRegistry(`ftp://user:secret@host`)
    } catch (error) {
      errors.push(error as Error)
    }
    assert.equal(errors.length, 2)
    for (const error of errors) assert.doesNotMatch(error.message, /secret/)
  })

  test("a server that is not there, or cuts the connection", async () => {
    const gone = await FakeRegistry.start()
    const { url } = gone
    await gone[Symbol.asyncDispose]()
    await assert.rejects(confluentRegistry(url, { retries: 0 }).get(1), (error) => {
      return (
        error instanceof ConnectionError &&
        error.outcome === "rejected" &&
        error.retryable &&
        error.message.includes(url)
      )
    })
    server.answer = () => "cut"
    await assert.rejects(open().get(1), (error) => error instanceof ConnectionError && error.outcome === "unknown")
  })

  test("is tried again after what may pass, and not after anything else", async () => {
    const registry = open({ retries: 3 })
    server.answer = () => (server.seen.length < 3 ? [503, "busy"] : undefined)
    assert.equal(typeof (await registry.register("retried", order)), "number")
    assert.equal(server.seen.length, 3)
    server.seen.length = 0
    server.answer = () => [422, { error_code: 42201, message: "bad" }]
    await assert.rejects(registry.register("retried", order), InvalidError)
    assert.equal(server.seen.length, 1)
    server.seen.length = 0
    server.answer = () => [500, ""]
    await assert.rejects(registry.get(99), ConnectionError)
    assert.equal(server.seen.length, 4)
  })

  test("a server that never answers, or never ends its answer", async () => {
    server.answer = () => "hang"
    await assert.rejects(open({ timeoutMs: 50 }).get(1), TimeoutError)
    let cancelled = false
    const end = (): void => {
      cancelled = true
    }
    const body = new ReadableStream<Uint8Array>({ cancel: end })
    const fetch = (_url: unknown, init?: RequestInit): Promise<Response> => {
      init?.signal?.addEventListener("abort", end)
      return Promise.resolve(new Response(body))
    }
    await assert.rejects(open({ timeoutMs: 20, fetch: fetch as typeof globalThis.fetch }).get(1), TimeoutError)
    assert.ok(cancelled, "the request is ended")
  })

  test("an abort ends what waits, and refuses what comes later", async () => {
    const abort = new AbortController()
    const registry = open({ signal: abort.signal })
    server.answer = () => "hang"
    const waiting = registry.get(1)
    while (server.seen.length === 0) await new Promise((resolve) => setImmediate(resolve))
    abort.abort()
    await assert.rejects(waiting, CancelledError)
    server.answer = undefined
    await assert.rejects(registry.subjects(), CancelledError)
  })

  test("an answer without end is not read to its end", async () => {
    let pulled = 0
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        pulled++
        controller.enqueue(new Uint8Array(1024 * 1024))
      },
    })
    const fetch = () => Promise.resolve(new Response(endless))
    await assert.rejects(open({ fetch: fetch as typeof globalThis.fetch }).get(1), /more than \d+ bytes/)
    assert.ok(pulled < 50)
  })
})

describe("what is refused before anything is asked", () => {
  test("URLs and options that are none", () => {
    for (const url of ["", "registry:8081", "ftp://a", "http://a?b=c", 5, undefined]) {
      assert.throws(() => confluentRegistry(url as never), InvalidError, String(url))
    }
    for (const options of [
      { timeout: 5 },
      { retries: -1 },
      { timeoutMs: 0 },
      { auth: {} },
      { auth: { username: "a" } },
      { auth: { token: "a", username: "b", password: "c" } },
      { headers: { a: 1 } },
      { signal: {} },
      { fetch: 5 },
      { cacheSize: 0 },
    ]) {
      assert.throws(() => confluentRegistry("http://a", options as never), InvalidError, JSON.stringify(options))
    }
  })

  test("schemas without a subject, and force", async () => {
    await assert.rejects(open().register(order), /subject/)
    await assert.rejects(open().register("a", order, { force: true }), /setCompatibility/)
    await assert.rejects(open().register("a", { type: "avro", schema: "{" }), InvalidError)
    assert.deepEqual(seen(), [])
  })
})
