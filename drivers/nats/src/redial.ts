/** What nats.js 3.4 leaves open in its attempts to reconnect. */
import type { NatsConnection } from "@nats-io/transport-node"

/** An attempt to reconnect may take so long, in ms: a server that accepts and says nothing must not hold up the next attempt. */
const longestDialMs: number = 5_000

/** Bounds the attempts to come; the first connection has the caller's bound. */
export function boundDials(nc: NatsConnection): void {
  const options = protocolOf(nc)?.options
  if (options !== undefined) options.timeout = longestDialMs
}

/** The connection of an attempt was cut before it stood. The client would wait for the attempt's whole time. */
export function failDial(nc: NatsConnection, error: Error): void {
  protocolOf(nc)?.connectError?.(error)
}

/** Ends an attempt in a client that was closed: it would go on, connect, and keep its socket and the timer of its pings. */
export function endDial(nc: NatsConnection): void {
  const protocol = protocolOf(nc)
  if (protocol === undefined) return
  const end = (): void => {
    protocol.transport?.discard()
    protocol.heartbeats?.cancel()
  }
  end()
  // One that had not begun to connect makes another transport.
  protocol.connectPromise?.then(end, end)
}

function protocolOf(nc: NatsConnection): ProtocolHandler | undefined {
  return (nc as unknown as { readonly protocol?: ProtocolHandler }).protocol
}

interface ProtocolHandler {
  readonly options?: { timeout?: number }
  readonly transport?: { discard(): void }
  readonly heartbeats?: { cancel(): void }
  readonly connectPromise?: Promise<void> | null
  readonly connectError?: (error: Error) => void
}
