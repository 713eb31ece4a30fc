/** Registries over one state at the same time, and processes that die at any write: no id is given twice, and nothing is left wrong. */
import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { MillraceError } from "@millrace/contract"
import { systemClock } from "@millrace/runtime"
import fc from "fast-check"
import { MemoryState } from "./memory-state.test-support.ts"
import { avroRecord, registryOver } from "./rig.test-support.ts"
import type { SchemaInit } from "./schema.ts"
import { StateRegistry } from "./state-registry.ts"

const avro = (schema: string | object): SchemaInit => ({ type: "avro", schema })
const order1 = avro(avroRecord("Order", [{ name: "id", type: "string" }]))
const order3 = avro(
  avroRecord("Order", [
    { name: "id", type: "string" },
    { name: "paid", type: "boolean" },
  ]),
)

describe("others at the same time", () => {
  const shapes = [0, 1, 2, 3].map((index) => avro(avroRecord(`S${index}`, [])))

  test("registrations of several processes give no id twice and no schema two ids", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.array(fc.record({ process: fc.nat(2), shape: fc.nat(3), subject: fc.constantFrom("a", "b", undefined) }), {
          minLength: 2,
          maxLength: 12,
        }),
        async (scheduler, calls) => {
          const state = new MemoryState()
          state.pause = () => scheduler.schedule(Promise.resolve(), "state")
          const registries = [0, 1, 2].map(() => registryOver(state))
          await registries[0]?.setCompatibility.call(registryOver(withoutPause(state)), undefined, "none")
          const work = calls.map(async ({ process, shape, subject }) => {
            const registry = registries[process] as StateRegistry
            const schema = shapes[shape] as SchemaInit
            return {
              shape,
              id: await (subject === undefined ? registry.register(schema) : registry.register(subject, schema)),
            }
          })
          const [answers] = await Promise.all([Promise.all(work), scheduler.waitFor(Promise.all(work))])
          state.pause = undefined
          const idOfShape = new Map<number, number>()
          for (const { shape, id } of answers) {
            assert.equal(idOfShape.get(shape) ?? id, id)
            idOfShape.set(shape, id)
          }
          assert.equal(new Set(idOfShape.values()).size, idOfShape.size)
          const registry = registryOver(state)
          for (const subject of await registry.subjects()) {
            const asked = new Set(
              calls.filter((call) => call.subject === subject).map(({ shape }) => idOfShape.get(shape)),
            )
            const versions = await registry.versions(subject)
            assert.deepEqual(new Set(versions.map(({ id }) => id)), asked)
            assert.equal(versions.length, asked.size)
          }
        },
      ),
      { numRuns: process.env.MILLRACE_LONG === "1" ? 500 : 25 },
    )
  })

  test("of two incompatible versions one is taken", async () => {
    for (let seed = 0; seed < 20; seed++) {
      const state = new MemoryState()
      const registry = registryOver(state)
      await registry.register("orders", order1)
      let turn = seed
      state.pause = async () => {
        turn = (turn * 7 + 3) % 5
        for (let step = turn; step > 0; step--) await Promise.resolve()
      }
      const rivals = [
        avro(
          avroRecord("Order", [
            { name: "id", type: "string" },
            { name: "x", type: "int", default: 1 },
          ]),
        ),
        avro(
          avroRecord("Order", [
            { name: "id", type: "string" },
            { name: "x", type: "string", default: "" },
          ]),
        ),
      ]
      const ends = await Promise.allSettled(rivals.map((rival) => registryOver(state).register("orders", rival)))
      assert.deepEqual(ends.map(({ status }) => status).sort(), ["fulfilled", "rejected"])
      assert.equal((await registry.versions("orders")).length, 2)
    }
  })

  test("whoever dies at any write leaves nothing wrong, and the next one goes on", async () => {
    for (const when of ["before", "after"] as const) {
      for (let at = 0; at < 6; at++) {
        const state = new MemoryState()
        state.fault = (puts) => (puts === at ? when : undefined)
        const died = await registryOver(state)
          .register("orders", order1)
          .catch(() => undefined)
        assert.ok(died === undefined || at >= 4, `put ${at} was expected to fail`)
        state.fault = undefined
        // Somebody else's schema comes first, so that an id that was claimed before must not be given again.
        const other = await registryOver(state).register("others", order3)
        const registry = registryOver(state)
        const id = await registry.register("orders", order1)
        assert.notEqual(id, other)
        assert.equal((await registry.versions("orders")).length, 1)
        assert.equal((await registry.list()).length, 2, `died ${when} put ${at}`)
        assert.equal(await registry.register(order1), id)
      }
    }
  })

  test("a put whose answer was lost is found again by the retry", async () => {
    for (let at = 0; at < 4; at++) {
      const state = new MemoryState()
      const put = state.put.bind(state)
      let puts = 0
      state.put = async (key, value, options) => {
        const entry = await put(key, value, options)
        if (puts++ === at) throw new MillraceError("timeout", "the answer was lost")
        return entry
      }
      const manifest = { backend: "memory", state: { supported: true } }
      const publish = { timeoutMs: 10_000, retries: 2, retryBackoffMs: 1 }
      const registry = new StateRegistry({ session: { state, manifest } as never, clock: systemClock, publish })
      const id = await registry.register("orders", order1)
      assert.equal((await registry.versions("orders")).length, 1)
      assert.deepEqual(
        (await registry.list()).map((schema) => schema.id),
        [id],
      )
    }
  })

  test("many at once in one process", async () => {
    const state = new MemoryState()
    const registry = registryOver(state)
    const ids = await Promise.all(
      Array.from({ length: 400 }, (_, index) =>
        registry.register("s", { type: "json-schema", schema: { title: `${index % 10}` } }),
      ),
    )
    assert.equal(new Set(ids).size, 10)
    assert.equal(Math.max(...ids), 10)
  })
})

function withoutPause(state: MemoryState): MemoryState {
  const other = new MemoryState()
  other.put = (key, value, options) => {
    const { pause } = state
    state.pause = undefined
    const done = state.put(key, value, options)
    state.pause = pause
    return done
  }
  return other
}
