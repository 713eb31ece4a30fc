/** A member of a group in a process of its own, which is killed: `url group stream topic memberId|-`. Says what it has and handles. */
import { argv, stdout } from "node:process"
import { GroupReader, type Handled, openSession } from "./group-rig.test-support.ts"

const [url, group, stream, topic, memberId] = argv.slice(2) as [string, string, string, string, string]
const opened = await openSession(url)
const description = await opened.session.catalog.describeTopic({ stream, topic })
const log: Handled[] = []
const named = memberId === "-" ? {} : { memberId }
const member = await GroupReader.join(opened, group, { topic: description, log, ...named })
let told = ""
setInterval(() => {
  for (const { partition, offset } of log.splice(0)) stdout.write(`record ${partition} ${offset}\n`)
  const now = member.partitions.join(" ")
  if (now !== told) stdout.write(`held ${now}\n`)
  told = now
}, 20)
