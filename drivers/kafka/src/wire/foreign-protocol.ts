/** What it is that answers where a Kafka broker was expected, by the first bytes it sent. */

/** A guess in words, with what to do; `undefined` when the bytes look like nothing known. */
export function foreignProtocol(first: Uint8Array): string | undefined {
  const text = Buffer.from(first.subarray(0, 16)).toString("latin1")
  if (text.startsWith("INFO ")) return "it speaks NATS: the URL should begin with nats:"
  if (text.startsWith("HTTP/")) return "it speaks HTTP: the port is that of a web server, not of a Kafka listener"
  if (text.startsWith("SSH-")) return "it speaks SSH: the port is not that of a Kafka listener"
  if (text.startsWith("-ERR") || text.startsWith("-DENIED")) return "it answers like Redis"
  if (/^220[ -]/.test(text)) return "it greets like a mail or FTP server"
  if (text.startsWith("AMQP")) return "it speaks AMQP"
  // A TLS record: alert or handshake, major version 3.
  if ((first[0] === 0x15 || first[0] === 0x16) && first[1] === 0x03) {
    return "it speaks TLS: the port is that of an SSL listener, which this driver does not use yet; take one with the protocol PLAINTEXT"
  }
  return undefined
}
