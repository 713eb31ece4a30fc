import { exchange } from "./exchange.ts"

/** Whom the probe logs in as. */
export interface NatsLogin {
  readonly user?: string | undefined
  readonly password?: string | undefined
}

/**
 * Asks a server whether it serves clients: it logs in, and JetStream answers `$JS.API.INFO`, which it does once it has recovered its
 * streams and, in a cluster, there is a leader. @throws Error that says what was answered
 */
export async function probeNats(port: number, { user, password }: NatsLogin): Promise<void> {
  const login = JSON.stringify({ verbose: false, pedantic: false, lang: "probe", version: "1", user, pass: password })
  const inbox = "_INBOX.millrace-probe"
  let asked = false
  const answer = await exchange({
    port,
    read: (bytes, socket) => {
      const text = bytes.toString()
      if (!asked && text.startsWith("INFO ") && text.includes("\r\n")) {
        asked = true
        socket.write(`CONNECT ${login}\r\nSUB ${inbox} 1\r\nPUB $JS.API.INFO ${inbox} 0\r\n\r\n`)
      }
      const refused = /-ERR (.*)\r\n/.exec(text)
      if (refused !== null) throw new Error(`the server at port ${port} answers ${refused[1]}`)
      const message = /^MSG \S+ 1 (\d+)\r\n/m.exec(text)
      if (message === null) return undefined
      const body = text.slice(message.index + message[0].length)
      return body.length < Number(message[1]) ? undefined : Buffer.from(body)
    },
  })
  const { error } = JSON.parse(answer.toString()) as { error?: { description?: string } }
  if (error !== undefined) throw new Error(`JetStream at port ${port} answers: ${error.description}`)
}
