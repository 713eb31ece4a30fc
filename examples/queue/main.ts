/**
 * A work queue: mails lie in a topic, and two workers send them. What fails is tried again, what can never work goes to a dead-letter topic,
 * and comes back from there once the cause is mended. Workers in other processes would do the same: the queue lives in the backend.
 *
 *     node examples/queue/main.ts                 in memory
 *     node examples/queue/main.ts file:./mail     in a directory
 */
import process from "node:process"
import { setTimeout as wait } from "node:timers/promises"
import type { Queue, QueueConsumer } from "millrace"
import { connect, deadLetter, json } from "millrace"
import type { Mail } from "./mail-server.ts"
import { MailServer } from "./mail-server.ts"

const mail = json<Mail>((value) => {
  const { to, text } = Object(value) as Record<string, unknown>
  if (typeof to !== "string" || typeof text !== "string") throw new TypeError("that is no mail")
  return { to, text }
})
const server = new MailServer(["ann@example.org", "ben@example.org", "cem@example.org"])

await using client = await connect(process.argv[2] ?? "memory:", { stream: "mail" })
const outbox = client.topic("outbox")
await outbox.ensure(2)
for (const to of ["ann@example.org", "ben@example.org", "nobody@example.org", "cem@example.org"]) {
  await outbox.json(mail).publish({ to, text: "Your order is on its way." }, { key: to })
}

const queue = outbox.queue("senders", {
  ackWaitMs: 10_000,
  maxDeliver: 5,
  deadLetter: deadLetter(client.topic("outbox-dead")),
})
const workers = await Promise.all([queue.consumer(), queue.consumer()])
const runs = workers.map((worker, index) => send(worker, `worker ${index + 1}`))
await empty(queue)

server.open("nobody@example.org")
console.log("nobody@example.org has a mailbox now, and what is in the dead-letter topic goes back")
await queue.redrive()
await empty(queue)
for (const worker of workers) await worker.shutdown()
await Promise.all(runs)

/** Sends mails until the worker is shut down. A message is done when the handler returns. */
function send(worker: QueueConsumer, name: string): Promise<void> {
  return worker.run(
    (message) => {
      const { to, text } = mail.decode(message.payload ?? new Uint8Array())
      server.deliver({ to, text })
      console.log(`${name} sent a mail to ${to}, delivery ${message.deliveries}`)
    },
    { concurrency: 4, onError: (error, next) => console.log(`${name}: ${error.message}; next: ${next}`) },
  )
}

/** Waits until every message of the queue is done, or in the dead-letter topic. */
async function empty(queue: Queue): Promise<void> {
  for (;;) {
    const { pending, ackPending, delayed } = await queue.info()
    if (pending === 0n && ackPending === 0 && delayed === 0) return
    await wait(20)
  }
}
