import { MillraceError } from "@millrace/contract"
import type { NatsConnection } from "@nats-io/transport-node"

/**
 * Writes protocol lines that are encoded already to the client's connection, many messages in one buffer.
 *
 * nats.js has no public way for that: its `publish` takes one message, checks and encodes it anew, and knows headers only as text
 * without line order. Its protocol handler takes finished commands (`sendCommand`); the package names the exact version of the client,
 * and `wire.test.ts` notices a release that is made otherwise.
 */
export class Wire {
  readonly #protocol: ProtocolHandler

  /** @throws MillraceError when the client is not of the release that this package was made with */
  constructor(nc: NatsConnection) {
    const { protocol } = nc as unknown as { readonly protocol?: ProtocolHandler }
    if (typeof protocol?.sendCommand !== "function") {
      throw new MillraceError(
        "protocol",
        "the installed @nats-io/nats-core is not the release that @millrace/nats is made for",
        {
          outcome: "rejected",
        },
      )
    }
    this.#protocol = protocol
  }

  /** Hands whole commands over, each with its line end. The buffer must not change afterwards. Nothing is sent while disconnected. */
  send(commands: Uint8Array): void {
    this.#protocol.sendCommand(commands)
  }

  /** Sends one message: `PUB`, or `HPUB` where there is a header block. */
  publish(
    subject: string,
    reply: string,
    message: { readonly payload: Uint8Array; readonly headers?: Uint8Array | undefined },
  ): void {
    const { payload, headers } = message
    const headerBytes = headers?.length ?? 0
    const sizes = headerBytes > 0 ? `${headerBytes} ${headerBytes + payload.length}` : `${payload.length}`
    const line = `${headerBytes > 0 ? "HPUB" : "PUB"} ${subject} ${reply === "" ? "" : `${reply} `}${sizes}\r\n`
    const buffer = Buffer.allocUnsafe(line.length + headerBytes + payload.length + 2)
    let at = buffer.write(line, 0, "latin1")
    if (headers !== undefined) {
      buffer.set(headers, at)
      at += headerBytes
    }
    buffer.set(payload, at)
    buffer.write("\r\n", at + payload.length, "latin1")
    this.send(buffer)
  }
}

interface ProtocolHandler {
  sendCommand(command: Uint8Array): void
}
