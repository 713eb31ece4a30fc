/** A schema registry in this process, behind the REST interface that Confluent documents, as far as writing and reading values needs it. */
import { once } from "node:events"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"

interface Entry {
  readonly subject: string
  readonly version: number
  readonly id: number
  readonly schema: string
  readonly schemaType: string
}

type Answer = readonly [status: number, body: object]

export class RegistryServer implements AsyncDisposable {
  /** Answers 503 while set. */
  away = false
  /** Answers 409 to new versions while set, with these texts. */
  incompatible: string | undefined
  /** How many requests there were. */
  requests = 0
  readonly #entries: Entry[] = []
  readonly #server = createServer(async (request, response) => {
    this.requests++
    const [status, body] = this.away ? failed(503, 50_003, "away for a while") : await this.#answer(request)
    response.writeHead(status, { "content-type": "application/vnd.schemaregistry.v1+json" })
    response.end(JSON.stringify(body))
  })

  static async start(): Promise<RegistryServer> {
    const server = new RegistryServer()
    server.#server.listen(0, "127.0.0.1")
    await once(server.#server, "listening")
    return server
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, "close")
  }

  async #answer(request: IncomingMessage): Promise<Answer> {
    const path = (request.url ?? "").split("?")[0]?.split("/").slice(1).map(decodeURIComponent) ?? []
    const [kind, name = "", part, version] = path
    if (kind === "schemas" && name === "ids") return this.#byId(Number(part))
    if (kind === "subjects" && request.method === "POST" && part === "versions") {
      return this.#add(name, JSON.parse(await textOf(request)))
    }
    if (kind === "subjects" && part === "versions" && version !== undefined) return this.#version(name, version)
    return failed(404, 404, "HTTP 404 Not Found")
  }

  #byId(id: number): Answer {
    const found = this.#entries.find((entry) => entry.id === id)
    if (found === undefined) return failed(404, 40_403, "Schema not found")
    const { schema, schemaType } = found
    return [200, schemaType === "AVRO" ? { schema } : { schema, schemaType }]
  }

  #version(subject: string, version: string): Answer {
    const versions = this.#entries.filter((entry) => entry.subject === subject)
    if (versions.length === 0) return failed(404, 40_401, `Subject '${subject}' not found.`)
    const found = version === "latest" ? versions.at(-1) : versions.find((entry) => entry.version === Number(version))
    return found === undefined ? failed(404, 40_402, "Version not found.") : [200, found]
  }

  #add(subject: string, of: { readonly schema: string; readonly schemaType?: string }): Answer {
    if (this.incompatible !== undefined) return failed(409, 409, this.incompatible)
    const { schema, schemaType = "AVRO" } = of
    const versions = this.#entries.filter((entry) => entry.subject === subject)
    const known = versions.find((entry) => entry.schema === schema)
    if (known !== undefined) return [200, { id: known.id }]
    // Ids of a registry that has lived: all four bytes are in use.
    const id = 0x01_02_03_00 + this.#entries.length
    this.#entries.push({ subject, version: versions.length + 1, id, schema, schemaType })
    return [200, { id }]
  }
}

function failed(status: number, code: number, message: string): Answer {
  return [status, { error_code: code, message }]
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
