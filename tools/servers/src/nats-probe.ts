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
export async function probeNats(port: number, login: NatsLogin): Promise<void> {
  await ask(port, login, { subject: "$JS.API.INFO", body: "" })
}

/**
 * Asks a cluster whether it can place a stream on as many servers: the leader hears of the others some time after it was elected. A
 * stream is made in memory and deleted. @throws Error that says what was answered
 */
export async function probePlacement(port: number, login: NatsLogin, replicas: number): Promise<void> {
  const name = "millrace-probe"
  const stream = { name, subjects: [name], num_replicas: replicas, storage: "memory" }
  await ask(port, login, { subject: `$JS.API.STREAM.CREATE.${name}`, body: JSON.stringify(stream) })
  await ask(port, login, { subject: `$JS.API.STREAM.DELETE.${name}`, body: "" })
}

async function ask(
  port: number,
  { user, password }: NatsLogin,
  { subject, body }: { readonly subject: string; readonly body: string },
): Promise<void> {
  const login = JSON.stringify({ verbose: false, pedantic: false, lang: "probe", version: "1", user, pass: password })
  const inbox = "_INBOX.millrace-probe"
  const request = `PUB ${subject} ${inbox} ${Buffer.byteLength(body)}\r\n${body}\r\n`
  let asked = false
  const answer = await exchange({
    port,
    read: (bytes, socket) => {
      const text = bytes.toString()
      if (!asked && text.startsWith("INFO ") && text.includes("\r\n")) {
        asked = true
        socket.write(`CONNECT ${login}\r\nSUB ${inbox} 1\r\n${request}`)
      }
      const refused = /-ERR (.*)\r\n/.exec(text)
      if (refused !== null) throw new Error(`the server at port ${port} answers ${refused[1]}`)
      const message = /^MSG \S+ 1 (\d+)\r\n/m.exec(text)
      if (message === null) return undefined
      const content = text.slice(message.index + message[0].length)
      return content.length < Number(message[1]) ? undefined : Buffer.from(content)
    },
  })
  const { error } = JSON.parse(answer.toString()) as { error?: { description?: string } }
  if (error !== undefined) throw new Error(`JetStream at port ${port} answers: ${error.description}`)
}
