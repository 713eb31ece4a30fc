/** Chapter: what is refused, and how: each error is typed, and names the thing, the value and what is allowed. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { type Client, connect, HeaderValue, Json, type Topic } from "millrace"
import { type ClientRig, encode, fill, takeTexts } from "../rig/client-rig.ts"
import { freePort } from "../rig/free-port.ts"
import { type Refusal, refused } from "../rig/refusal.ts"

interface BadCall {
  /** What the backend must have for it. */
  readonly needs?: (manifest: Client["manifest"]) => Client["manifest"]["catalog"]["trim"]
  readonly name: string
  readonly call: (topic: Topic) => unknown
  readonly refusal: Refusal
}

const invalid = (...says: readonly (string | RegExp)[]): Refusal => ({
  kind: "invalid",
  says,
  retryable: false,
  outcome: "rejected",
})

export function badInputChapter(rig: ClientRig): void {
  describe("bad connection strings and options", () => {
    for (const [url, says] of [
      ["", [/connection string|url/i]],
      ["data", [/scheme/]],
      ["nosuch://host", ["nosuch", "file", "memory"]],
      ["file:", [/directory|path/]],
      ["memory:?nosuch=1", ["nosuch"]],
      ["file:./x?nosuch=1", ["nosuch"]],
      ["memory:?a=1&a=2", ["a"]],
    ] as const) {
      test(`connect(${JSON.stringify(url)}) is refused`, async () => {
        const error = await refused(() => connect(url), invalid(...says))
        assert.ok(error.message.length > 10)
      })
    }

    for (const scheme of ["kafka", "nats", "iggy"]) {
      test(`${scheme}: where nobody listens is a connection error at once, with the address`, async () => {
        const port = await freePort()
        const url = scheme === "iggy" ? `iggy://u:p@127.0.0.1:${port}` : `${scheme}://127.0.0.1:${port}`
        await refused(() => connect(url, { connectTimeoutMs: 10_000 }), {
          kind: "connection",
          says: [`127.0.0.1:${port}`],
          outcome: "rejected",
          retryable: true,
        })
      })
    }

    test("a password never shows in an error", async () => {
      const error = await refused(() => connect("nosuch://user:hunter2@host?x=1"), "invalid")
      assert.ok(!error.message.includes("hunter2") && !String(error.stack).includes("hunter2"))
      assert.ok(!JSON.stringify(error.context).includes("hunter2"))
    })

    for (const [options, says] of [
      [{ nosuch: 1 }, ["nosuch", "connectTimeoutMs"]],
      [{ connectTimeoutMs: 0 }, ["connectTimeoutMs", "0"]],
      [{ connectTimeoutMs: -1 }, ["connectTimeoutMs", "-1"]],
      [{ publishTimeoutMs: 2 ** 31 }, ["publishTimeoutMs", "2147483648", "2147483647"]],
      [{ publishRetries: 1.5 }, ["publishRetries", "1.5"]],
      [{ publishRetries: -1 }, ["publishRetries", "-1"]],
      [{ publishRetryBackoffMs: "soon" }, ["publishRetryBackoffMs", "soon"]],
      [{ stream: "" }, [/stream/]],
    ] as const) {
      test(`connect with ${JSON.stringify(options)} is refused`, async () => {
        await refused(() => connect("memory:", options as never), invalid(...says))
      })
    }

    test("an aborted connect is cancelled", async () => {
      await refused(() => connect("memory:", { signal: AbortSignal.abort() }), "cancelled")
    })
  })

  describe("bad names", () => {
    const limit = (): number => rig.client.manifest.limits.nameBytes
    const names: [what: string, name: () => string, says: () => readonly (string | RegExp)[]][] = [
      ["an empty name", () => "", () => [/empty/]],
      ["a name that is too long", () => "a".repeat(limit() + 1), () => [String(limit() + 1), String(limit())]],
      ["a name that is too long in bytes", () => "é".repeat(limit()), () => [String(2 * limit()), String(limit())]],
      ["a name with a tab", () => "tab\there", () => [/control/, "U+0009"]],
      ["a name with a NUL", () => "nul\u0000", () => [/control/, "U+0000"]],
      ["a lone surrogate", () => "\ud800", () => [/surrogate/]],
    ]
    for (const [what, nameOf, saysOf] of names) {
      test(`${what} is refused as stream, topic, consumer and group`, async () => {
        const [name, says] = [nameOf(), saysOf()]
        const topic = await rig.topic()
        await refused(() => rig.client.stream(name).ensure(), invalid(...says))
        await refused(() => rig.client.stream("s").topic(name).ensure(1), invalid(...says))
        await refused(() => topic.consumer(name, 0).nextWithin(10), invalid(...says))
        await refused(() => topic.consumerGroup(name).consumer(), invalid(...says))
      })
    }

    test("a name that is no text is refused", async () => {
      await refused(() => rig.client.stream(7 as never).ensure(), invalid("7"))
      await refused(
        () =>
          rig.client
            .stream("s")
            .topic(null as never)
            .ensure(1),
        invalid("null"),
      )
    })
  })

  describe("bad records", () => {
    const limit = (): Client["manifest"]["limits"] => rig.client.manifest.limits
    const calls: BadCall[] = [
      {
        name: "a key together with a partition",
        call: (topic) => topic.producer().send(encode("p"), { key: "k", partition: 0 }),
        refusal: invalid(/key/, /partition/),
      },
      {
        name: "a partition out of range",
        call: (topic) => topic.producer().send(encode("p"), { partition: 7 }),
        refusal: invalid("7", /2 partitions/, "0 to 1"),
      },
      {
        name: "a negative partition",
        call: (topic) => topic.producer().send(encode("p"), { partition: -1 }),
        refusal: invalid("-1"),
      },
      {
        name: "a partition that is no whole number",
        call: (topic) => topic.producer().send(encode("p"), { partition: 0.5 }),
        refusal: invalid("0.5"),
      },
      {
        name: "an empty key",
        call: (topic) => topic.producer().send(encode("p"), { key: "" }),
        refusal: invalid(/key/, /empty/),
      },
      {
        name: "an empty key in bytes",
        call: (topic) => topic.producer().send(encode("p"), { key: new Uint8Array(0) }),
        refusal: invalid(/key/, /empty/),
      },
      {
        name: "a payload that is no bytes",
        call: (topic) => topic.producer().send("text" as never),
        refusal: invalid(/Uint8Array/),
      },
      {
        name: "an undefined payload",
        call: (topic) => topic.producer().send(undefined as never),
        refusal: invalid(/Uint8Array/),
      },
      {
        name: "an id outside of 128 bits",
        call: (topic) => topic.producer().send(encode("p"), { id: 2n ** 128n }),
        refusal: invalid(/id/),
      },
      {
        name: "a reserved header name",
        call: (topic) => topic.producer().send(encode("p"), { headers: { "millrace-x": "1" } }),
        refusal: invalid("millrace-x", /reserved/),
      },
      {
        name: "a header value of no kind",
        call: (topic) => topic.producer().send(encode("p"), { headers: { h: 7 as never } }),
        refusal: invalid('"h"'),
      },
      {
        name: "an unknown send option",
        call: (topic) => topic.producer().send(encode("p"), { partitions: 1 } as never),
        refusal: invalid("partitions"),
      },
      {
        name: "a value of a partitioner out of range",
        call: (topic) => topic.producer({ partitioner: () => 9 }).send(encode("p")),
        refusal: invalid("9"),
      },
      {
        name: "the builder with key and partition",
        call: (topic) => topic.publish().payload(encode("p")).key("k").partition(1).send(),
        refusal: invalid(/key/, /partition/),
      },
      {
        name: "the builder without a payload",
        call: (topic) => topic.publish().send(),
        refusal: invalid(/payload/),
      },
    ]
    for (const { name, call, refusal } of calls) {
      test(`${name} is refused, and the producer goes on`, async () => {
        const topic = await rig.topic(2)
        await refused(() => call(topic), refusal)
        await fill(topic, ["after"])
        const [marks] = await topic.watermarks()
        assert.equal(marks?.end, 1n, "nothing but the good record is stored")
      })
    }

    test("a payload of 200 MiB is refused by the limit before it is copied", async () => {
      const topic = await rig.topic()
      const payload = new Uint8Array(200 * 1024 * 1024)
      const error = await refused(() => topic.producer().send(payload), {
        kind: "record-too-large",
        says: [String(payload.length), String(limit().payloadBytes)],
        retryable: false,
        outcome: "rejected",
      })
      assert.equal(error.context.sizeBytes, payload.length)
      assert.equal(error.context.limitBytes, limit().payloadBytes)
      assert.equal((await topic.watermarks())[0]?.end, 0n)
    })

    test("one byte above the payload limit is refused, and the records before it are not sent either", async () => {
      const topic = await rig.topic()
      const payload = new Uint8Array(limit().payloadBytes + 1)
      await refused(() => topic.producer().sendBatch([encode("a"), payload]), "record-too-large")
      assert.equal((await topic.watermarks())[0]?.end, 0n)
    })

    test("headers of exactly the limit are taken, one byte more is refused", async (t) => {
      const { headersBytes, headerValueBytes } = limit()
      if (headerValueBytes < headersBytes) return t.skip("one header cannot fill the block on this backend")
      const topic = await rig.topic()
      const send = (length: number): Promise<unknown> =>
        topic.producer().send(encode("p"), { headers: [["h", HeaderValue.raw(new Uint8Array(length))]] })
      let least = limit().headersBytes - 100
      let most = limit().headersBytes + 1
      const error = await refused(() => send(most), {
        kind: "record-too-large",
        says: [/header/, String(limit().headersBytes)],
      })
      assert.equal(error.context.limitBytes, limit().headersBytes)
      await send(least)
      while (most - least > 1) {
        const middle = Math.floor((least + most) / 2)
        if (await accepted(send(middle))) least = middle
        else most = middle
      }
      const consumer = topic.consumer(undefined, 0, { startAt: { kind: "last" } })
      const message = await consumer.nextWithin(5_000)
      assert.equal(message.headers.get("h")?.bytes.length, least, "the longest header block that is taken is read back")
      await consumer.shutdown()
    })

    test("a key and a header name above their limits are refused with both numbers", async () => {
      const topic = await rig.topic()
      const { keyBytes, headerNameBytes } = limit()
      await refused(() => topic.producer().send(encode("p"), { key: new Uint8Array(keyBytes + 1).fill(97) }), {
        kind: "record-too-large",
        says: [String(keyBytes + 1), String(keyBytes)],
      })
      const name = "n".repeat(headerNameBytes + 1)
      await refused(() => topic.producer().send(encode("p"), { headers: [[name, "v"]] }), {
        kind: "record-too-large",
        says: [String(headerNameBytes + 1), String(headerNameBytes)],
      })
    })

    test("a codec that throws is a typed error on both sides, and nothing is stored or skipped", async () => {
      const topic = await rig.topic()
      const failing = topic.json(
        new Json<{ toJSON?: () => unknown }>(() => {
          throw new Error("decode says no")
        }),
      )
      const value = {
        toJSON(): never {
          throw new Error("encode says no")
        },
      }
      const error = await refused(() => failing.publish(value), "invalid")
      assert.match(`${error.message} ${String(error.cause)}`, /encode says no/)
      assert.equal((await topic.watermarks())[0]?.end, 0n)
      await fill(topic, ['{"n":1}'])
      const reader = await failing.records("reader")
      const [result] = await reader.poll()
      assert.ok(result?.kind === "error")
      assert.match(`${result.error.message} ${String(result.error.cause)}`, /decode says no/)
      assert.equal(result.position.offset, 0n)
      await reader[Symbol.asyncDispose]()
    })
  })

  describe("bad settings", () => {
    const calls: BadCall[] = [
      { name: "no partitions", call: (topic) => topic.ensure(0), refusal: invalid("0", /partitions/) },
      { name: "too many partitions", call: (topic) => topic.ensure(1_000_000), refusal: invalid("1000000") },
      { name: "half a partition", call: (topic) => topic.ensure(1.5), refusal: invalid("1.5") },
      {
        name: "an unknown topic option",
        call: (topic) => topic.ensure(1, { nosuch: true } as never),
        refusal: invalid("nosuch", "expireAfterMs"),
      },
      {
        name: "an expiry that is negative",
        call: (topic) => topic.ensure(1, { expireAfterMs: -5 }),
        refusal: invalid("expireAfterMs", "-5"),
      },
      {
        name: "an expiry together with none",
        call: (topic) => topic.ensure(1, { expireAfterMs: 5, neverExpire: true }),
        refusal: invalid("expireAfterMs", "neverExpire"),
      },
      {
        name: "a size of 0",
        call: (topic) => topic.ensure(1, { maxTopicBytes: 0n }),
        refusal: invalid("maxTopicBytes", "0"),
      },
      {
        name: "a size above 63 bits",
        call: (topic) => topic.ensure(1, { maxTopicBytes: 2n ** 64n }),
        refusal: invalid("maxTopicBytes", String(2n ** 64n)),
      },
      {
        name: "a durability that there is not",
        call: (topic) => topic.ensure(1, { durability: "quantum" as never }),
        refusal: invalid("durability", "quantum", "written"),
      },
      {
        name: "a producer with an unknown option",
        call: (topic) => topic.producer({ nosuch: 1 } as never),
        refusal: invalid("nosuch", "batchLength"),
      },
      {
        name: "a producer with a batch length of 0",
        call: (topic) => topic.producer({ batchLength: 0 }),
        refusal: invalid("batchLength", "0"),
      },
      {
        name: "a background that is no object",
        call: (topic) => topic.producer({ background: "yes" } as never),
        refusal: invalid("background", "yes"),
      },
      {
        name: "a producer with negative retries",
        call: (topic) => topic.producer({ retries: -1 }),
        refusal: invalid("retries", "-1"),
      },
      {
        name: "a consumer with an unknown option",
        call: (topic) => topic.consumer("c", 0, { nosuch: 1 } as never),
        refusal: invalid("nosuch", "batchLength"),
      },
      {
        name: "a consumer with a batch length of 0",
        call: (topic) => topic.consumer("c", 0, { batchLength: 0 }),
        refusal: invalid("batchLength", "0"),
      },
      {
        name: "a consumer with another policy",
        call: (topic) => topic.consumer("c", 0, { commitPolicy: { kind: "often" } as never }),
        refusal: invalid("often", "polling"),
      },
      {
        name: "a consumer that starts nowhere",
        call: (topic) => topic.consumer("c", 0, { startAt: { kind: "offset", value: -1n } }),
        refusal: invalid("-1"),
      },
      {
        name: "a consumer of a partition that there is not",
        call: (topic) => topic.consumer("c", 9, {}).nextWithin(1_000),
        refusal: invalid("9", /1 partition/),
      },
      {
        name: "a negative wait",
        call: (topic) => topic.consumer("c", 0).nextWithin(-1),
        refusal: invalid("-1"),
      },
      {
        name: "a negative trim",
        needs: ({ catalog }) => catalog.trim,
        call: (topic) => topic.trim(0, -1n),
        refusal: invalid("-1"),
      },
      {
        name: "a trim of a partition that there is not",
        needs: ({ catalog }) => catalog.trim,
        call: (topic) => topic.trim(5, 0n),
        refusal: invalid("5"),
      },
      { name: "no partitions more", call: (topic) => topic.addPartitions(0), refusal: invalid("0") },
    ]
    for (const { name, needs, call, refusal } of calls) {
      test(`${name} is refused`, async (t) => {
        const capability = needs?.(rig.client.manifest)
        if (capability?.supported === false) return t.skip(capability.reason)
        const topic = await rig.topic()
        await refused(() => call(topic), refusal)
        await fill(topic, ["after"])
        await using consumer = topic.consumer(undefined, 0)
        assert.deepEqual(await takeTexts(consumer, 1), ["after"])
      })
    }
  })
}

async function accepted(call: Promise<unknown>): Promise<boolean> {
  try {
    await call
    return true
  } catch {
    return false
  }
}
