import { exchange } from "./exchange.ts"

const metadataKey = 3
const findCoordinatorKey = 10

/**
 * Asks a broker whether it serves clients: it lists all these brokers as members of the cluster (Metadata version 1), and it knows a
 * coordinator for a group (FindCoordinator version 1), for which it has the internal topic made on its first start.
 * @throws Error that says what is missing
 */
export async function probeBroker(port: number, brokers: readonly number[]): Promise<void> {
  // Topics: an empty array, so none.
  const metadata = await ask(port, metadataKey, Buffer.from([0, 0, 0, 0]))
  const known = brokersIn(metadata)
  const missing = brokers.filter((broker) => !known.has(broker))
  if (missing.length > 0) throw new Error(`broker at port ${port} does not know broker ${missing.join(", ")} yet`)
  const group = Buffer.from("millrace-probe")
  const coordinator = await ask(
    port,
    findCoordinatorKey,
    Buffer.concat([Buffer.from([0, group.length]), group, Buffer.from([0])]),
  )
  // After the throttle time.
  const error = coordinator.readInt16BE(4)
  if (error !== 0) throw new Error(`broker at port ${port} answers error ${error} when asked for a group's coordinator`)
}

function brokersIn(metadata: Buffer): Set<number> {
  const known = new Set<number>()
  let at = 4
  for (let left = metadata.readInt32BE(0); left > 0; left--) {
    known.add(metadata.readInt32BE(at))
    const hostLength = metadata.readInt16BE(at + 4)
    at += 4 + 2 + hostLength + 4
    // The rack, which may be null (-1).
    at += 2 + Math.max(0, metadata.readInt16BE(at))
  }
  return known
}

/** One request of version 1 with the headers of non-flexible versions; answers the body. */
async function ask(port: number, apiKey: number, body: Buffer): Promise<Buffer> {
  const client = Buffer.from("millrace-probe")
  const header = Buffer.alloc(14)
  header.writeInt32BE(10 + client.length + body.length, 0)
  header.writeInt16BE(apiKey, 4)
  header.writeInt16BE(1, 6)
  header.writeInt16BE(client.length, 12)
  const read = (bytes: Buffer): Buffer | undefined => {
    if (bytes.length < 4 || bytes.length < 4 + bytes.readInt32BE(0)) return undefined
    // After the size and the correlation id.
    return bytes.subarray(8, 4 + bytes.readInt32BE(0))
  }
  return exchange({ port, request: Buffer.concat([header, client, body]), read })
}
