import type { NatsConnection } from "@nats-io/transport-node"

/**
 * Makes the client give a connection up on which something else than the NATS protocol comes in. nats.js 3.4 ends its reading loop
 * then, prints the error, and keeps the socket until it misses the answers to its pings.
 * @param told Called with the parser's error, before the connection is lost.
 */
export function guardParser(nc: NatsConnection, told: (error: unknown) => void): void {
  const { protocol } = nc as unknown as { readonly protocol?: { parser?: Parser } }
  if (protocol?.parser === undefined) return
  let parser = guarded(protocol.parser, nc, told)
  // The client makes another one for each connection.
  Object.defineProperty(protocol, "parser", {
    configurable: true,
    get: () => parser,
    set: (next: Parser) => {
      parser = guarded(next, nc, told)
    },
  })
}

interface Parser {
  parse(bytes: Uint8Array): void
}

function guarded(parser: Parser, nc: NatsConnection, told: (error: unknown) => void): Parser {
  let broken = false
  const parse = parser.parse.bind(parser)
  parser.parse = (bytes) => {
    if (broken) return
    try {
      parse(bytes)
    } catch (error) {
      broken = true
      told(error)
      nc.reconnect().catch(() => {
        // The client is closed or closing: the connection goes anyway.
      })
    }
  }
  return parser
}
