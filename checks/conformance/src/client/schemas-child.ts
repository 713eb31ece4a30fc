/** A process of its own that registers schemas at the same time as others. Arguments: URL, subject, how many. Prints their ids. */
import { connect } from "millrace"

const [url, subject, count] = process.argv.slice(2)
if (url === undefined || subject === undefined || count === undefined) throw new Error("url, subject, count")

const client = await connect(url)
const ids: number[] = []
for (let index = 0; index < Number(count); index++) {
  const fields = Array.from({ length: index }, (_, field) => ({ name: `f${field}`, type: "int", default: 0 }))
  ids.push(await client.schemas.register(subject, { type: "avro", schema: { type: "record", name: "R", fields } }))
}
console.log(JSON.stringify(ids))
await client.close()
