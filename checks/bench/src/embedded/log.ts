/** A log of its own for one measurement, through the public API alone. */
import { type Client, connect, type Topic } from "millrace"

export interface Log extends AsyncDisposable {
  readonly client: Client
  readonly topic: Topic
  close(): Promise<void>
}

/** Connects to `directory` and makes sure of the topic `bench`/`records` with `partitions` partitions, with the defaults of a user. */
export async function openLog(directory: string, partitions: number): Promise<Log> {
  const client = await connect(`file:${directory}`)
  const topic = client.stream("bench").topic("records")
  await topic.ensure(partitions)
  const close = (): Promise<void> => client.close()
  return { client, topic, close, [Symbol.asyncDispose]: close }
}
