/** a server that comes back and does not take the user and password any more. (Kafka: this driver does not log in. Iggy: beside its driver.) */
import assert from "node:assert/strict"
import { readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { test } from "node:test"
import { type Server, serverNeed, startNats } from "@millrace/servers"
import { AuthenticationError, connect, PublishFailedError } from "millrace"
import { encode, takeTexts } from "../rig/client-rig.ts"
import { settlesWithin, until } from "../rig/deadline.ts"
import { collect, patientPublish } from "./broker-rig.ts"

/** Attempts to connect that a session may make in a minute. */
const mostAttempts = 20

test("A-10: NATS with another password fails each call as authentication, is not stormed, and is found again with the right one", {
  timeout: 60_000,
}, async (t) => {
  const need = await serverNeed("nats", { to: "start" })
  if (need !== undefined) return t.skip(`needs nats: ${need}`)
  await using server = await startNats({ proxied: true, user: "u", password: "first" })
  const [proxy] = server.proxies
  assert.ok(proxy !== undefined)
  const client = await connect(server.url, patientPublish)
  const topic = client.stream("s").topic("t")
  await topic.ensure(1)
  const producer = topic.producer()
  await producer.send(encode("before"))
  const consumer = topic.consumer("reader", 0, { startAt: { kind: "first" } })
  const reading = collect(consumer)
  await reading.reaches(1)
  const attemptsBefore = proxy.accepted

  await changePassword(server, "first", "second")
  await until("the description to be refused", async () => {
    const error: { readonly kind?: string } = await topic.describe().then(
      () => ({}),
      (reason) => reason,
    )
    return error.kind === "authentication" ? true : undefined
  })
  const failure: unknown = await settlesWithin(
    "a send that nobody may make",
    producer.send(encode("meanwhile")).catch((error: unknown) => error),
  )
  assert.ok(failure instanceof PublishFailedError, String(failure))
  const cause = failure.publishCause()
  assert.ok(cause instanceof AuthenticationError, String(cause))
  assert.equal(failure.outcome, "rejected")
  const ended = await settlesWithin("the end of the consumer", reading.ended)
  assert.equal((ended as { readonly kind?: string } | undefined)?.kind, "authentication")
  assert.ok(proxy.accepted - attemptsBefore <= mostAttempts, `${proxy.accepted - attemptsBefore} attempts to connect`)

  await changePassword(server, "second", "first")
  await until("the server to take the password again", async () => {
    const found = await topic.describe().catch(() => undefined)
    return found === undefined ? undefined : true
  })
  await topic.producer().send(encode("after"))
  await using again = topic.consumer("another", 0, { startAt: { kind: "first" } })
  assert.deepEqual(await takeTexts(again, 2), ["before", "after"])
  await consumer.shutdown().catch(() => {})
  await client.close()
})

/** The server reads its configuration anew, and cuts off whoever may not be there any more. */
async function changePassword(server: Server, from: string, to: string): Promise<void> {
  const file = join(server.directory, "server-1", "server.conf")
  const text = await readFile(file, "utf8")
  assert.ok(text.includes(`"${from}"`))
  await writeFile(file, text.replace(`"${from}"`, `"${to}"`))
  process.kill(server.pid() ?? 0, "SIGHUP")
}
