/** Kafka's own producer performance tool, in a JVM of its own. */
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import { kafkaClassPath } from "@millrace/servers"

/** Records a second that the Java producer reaches by its own account. The topic exists. */
export async function javaProduce(
  url: string,
  topic: string,
  load: { readonly records: number; readonly recordBytes: number },
): Promise<number> {
  const { stdout } = await promisify(execFile)("java", [
    "-cp",
    await kafkaClassPath(),
    "org.apache.kafka.tools.ProducerPerformance",
    "--topic",
    topic,
    "--num-records",
    String(load.records),
    "--record-size",
    String(load.recordBytes),
    "--throughput",
    "-1",
    "--producer-props",
    `bootstrap.servers=${new URL(url).host}`,
    "acks=all",
    "linger.ms=5",
    "batch.size=131072",
  ])
  const rates = [...stdout.matchAll(/([\d.]+) records\/sec/g)]
  const last = rates.at(-1)?.[1]
  if (last === undefined) throw new Error(`the producer performance tool told no rate: ${stdout.slice(-300)}`)
  return Number(last)
}
