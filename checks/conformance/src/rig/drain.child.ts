/**
 * A process that sends in the background and ends on SIGTERM as a service does: it closes its client and lets the event loop run out.
 * Arguments: URL, stream, topic, records, milliseconds that the close may take. Tells its parent `ready`, waits for a message, then tells
 * `accepted`; at its end `closed`, or how the close failed.
 */
import { connect, MillraceError, PublishFailedError } from "millrace"

const [url, stream, name, countText, timeoutText] = process.argv.slice(2)
if (url === undefined || stream === undefined || name === undefined) throw new Error("url, stream, topic")
const count = Number(countText)
const timeoutMs = Number(timeoutText)

const options = { publishTimeoutMs: 20_000, publishRetries: 200, publishRetryBackoffMs: 50 }
const client = await connect(url, options)
const producer = client.stream(stream).topic(name).producer({ background: true })
await producer.init()

process.once("SIGTERM", () => void end())
process.once("message", () => void send())
process.send?.({ state: "ready" })

async function send(): Promise<void> {
  const text = new TextEncoder()
  await Promise.all(Array.from({ length: count }, (_, index) => producer.send(text.encode(`r${index}`))))
  process.send?.({ state: "accepted" })
}

async function end(): Promise<void> {
  const began = performance.now()
  let state: object
  try {
    await client.close({ timeoutMs })
    state = { state: "closed", ms: performance.now() - began }
  } catch (error) {
    state = { state: "failed", ms: performance.now() - began, ...told(error) }
    process.exitCode = 3
  }
  process.send?.(state, () => process.disconnect())
}

/** What the failure says was not delivered. */
function told(error: unknown): object {
  if (!(error instanceof MillraceError)) return { kind: "untyped", message: String(error) }
  const undelivered = failuresIn(error).flatMap((failure) => failure.unconfirmed)
  const payloads = undelivered.map(({ payload }) => new TextDecoder().decode(payload ?? new Uint8Array(0)))
  return { kind: error.kind, message: error.message, payloads }
}

/** The publish failures that an error is, or was caused by. */
function failuresIn(error: unknown): PublishFailedError[] {
  if (error instanceof PublishFailedError) return [error]
  if (error instanceof AggregateError) return error.errors.flatMap(failuresIn)
  return error instanceof MillraceError && error.cause !== undefined ? failuresIn(error.cause) : []
}
