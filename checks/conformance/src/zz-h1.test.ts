import { test } from "node:test"
import { sharedServer } from "@millrace/servers"
import { connect } from "millrace"

const encode = (s: string) => new TextEncoder().encode(s)
test("storm", async () => {
  const { url } = await sharedServer("kafka")
  for (let round = 0; round < 80; round++) {
    const client = await connect(url)
    const stream = "h1storm-" + process.pid
    const topic = client.stream(stream).topic("t")
    await topic.ensure(2)
    const producer = topic.producer()
    const consumer = topic.consumer("reader", 0)
    const joining = topic.consumerGroup("g").consumer()
    const open = new Map<string, number>()
    const all: Promise<unknown>[] = []
    const calls = (name: string, p: Promise<unknown>) => {
      open.set(name, 1)
      all.push(
        p.then(
          (v) => {
            open.delete(name)
          },
          (e) => {
            open.delete(name)
          },
        ),
      )
    }
    calls("joining", joining)
    calls("next1", consumer.next())
    calls("next2", consumer.next())
    calls("wm", topic.watermarks())
    for (let i = 0; i < 40; i++) calls("send" + i, producer.send(encode("r" + i), { partition: i % 2 }))
    calls(
      "member.next",
      joining.then((m) => m.next()),
    )
    calls("batch", producer.sendBatch(Array.from({ length: 50 }, (_, i) => encode("b" + i))))
    calls("store", consumer.storeOffset(0n))
    calls("publish", topic.publish().payload(encode("p")).send())
    calls("ensure new", client.stream(stream).topic("new").ensure(1))
    const turns = Math.floor(Math.random() * 40)
    for (let t = 0; t < turns; t++) await new Promise((r) => setImmediate(r))
    const t0 = performance.now()
    await client.close()
    const t1 = performance.now()
    let done = false
    await Promise.race([
      Promise.all(all).then(() => {
        done = true
      }),
      new Promise((r) => setTimeout(r, 3000)),
    ])
    console.log(
      round,
      "turns",
      turns,
      "close",
      Math.round(t1 - t0),
      "rest",
      Math.round(performance.now() - t1),
      done ? "" : "OPEN " + [...open.keys()].join(),
    )
  }
})
