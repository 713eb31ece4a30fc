import { once } from "node:events"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** What a request was, for tests to look at. */
export interface SeenRequest {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage["headers"]
  readonly body: unknown
}

interface Version {
  readonly id: number
  readonly version: number
  readonly schema: string
  readonly schemaType: string
  readonly references: readonly object[]
}

/** An answer: its status and what goes with it. */
export type Answer = readonly [status: number, body: unknown]

const error = (status: number, code: number, message: string): Answer => [status, { error_code: code, message }]

/**
 * A registry behind Confluent's REST interface, with the answers that its reference documents (Schema Registry API reference). It takes
 * every schema as compatible unless it is told otherwise.
 */
export class FakeRegistry implements AsyncDisposable {
  readonly seen: SeenRequest[] = []
  /** Asked first; what it answers is the answer. Text is sent as it is, `"cut"` ends the connection, `"hang"` never answers. */
  answer: ((request: SeenRequest) => Answer | "hang" | "cut" | undefined) | undefined
  readonly #subjects = new Map<string, Version[]>()
  readonly #configs = new Map<string, string>()
  readonly #server = createServer((request, response) => void this.#serve(request, response))
  #config = "BACKWARD"
  #nextId = 1

  static async start(): Promise<FakeRegistry> {
    const registry = new FakeRegistry()
    registry.#server.listen(0, "127.0.0.1")
    await once(registry.#server, "listening")
    return registry
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const text = Buffer.concat(chunks).toString()
    const seen = {
      method: request.method ?? "",
      url: request.url ?? "",
      headers: request.headers,
      body: text === "" ? undefined : JSON.parse(text),
    }
    this.seen.push(seen)
    const special = this.answer?.(seen)
    if (special === "hang") return
    if (special === "cut") return void request.socket.destroy()
    const [status, body] = special ?? this.#answer(seen)
    response.writeHead(status, { "content-type": "application/vnd.schemaregistry.v1+json" })
    response.end(typeof body === "string" ? body : JSON.stringify(body))
  }

  #answer({ method, url, body }: SeenRequest): Answer {
    const parts = new URL(url, this.url).pathname.split("/").slice(1).map(decodeURIComponent)
    const [head, name = "", third, fourth, fifth] = parts
    if (head === "schemas" && name === "ids") return this.#byId(Number(third))
    if (head === "subjects" && parts.length === 1) return [200, [...this.#subjects.keys()]]
    if (head === "subjects" && method === "POST")
      return third === "versions" ? this.#add(name, body) : this.#find(name, body)
    if (head === "subjects") return this.#versions(name, fourth)
    if (head === "compatibility") return this.#compatible(third as string, fifth)
    if (head === "config") return this.#configured(method, parts[1], body)
    return error(404, 404, "HTTP 404 Not Found")
  }

  #byId(id: number): Answer {
    for (const versions of this.#subjects.values()) {
      const found = versions.find((version) => version.id === id)
      if (found !== undefined) {
        const { schema, schemaType, references } = found
        return [
          200,
          {
            schema,
            ...(schemaType === "AVRO" ? {} : { schemaType }),
            ...(references.length === 0 ? {} : { references }),
          },
        ]
      }
    }
    return error(404, 40403, `Schema ${id} not found`)
  }

  #add(subject: string, body: unknown): Answer {
    const versions = this.#subjects.get(subject) ?? []
    this.#subjects.set(subject, versions)
    const { schema, schemaType = "AVRO", references = [] } = body as Version
    const known = versions.find((version) => version.schema === schema)
    if (known !== undefined) return [200, { id: known.id }]
    const same = [...this.#subjects.values()]
      .flat()
      .find((version) => version.schema === schema && version.schemaType === schemaType)
    const id = same?.id ?? this.#nextId++
    versions.push({ id, version: versions.length + 1, schema, schemaType, references })
    return [200, { id }]
  }

  #find(subject: string, body: unknown): Answer {
    const versions = this.#subjects.get(subject)
    if (versions === undefined) return error(404, 40401, `Subject '${subject}' not found.`)
    const found = versions.find(({ schema }) => schema === (body as Version).schema)
    return found === undefined ? error(404, 40403, "Schema not found") : [200, { subject, ...found }]
  }

  #versions(subject: string, version: string | undefined): Answer {
    const versions = this.#subjects.get(subject)
    if (versions === undefined) return error(404, 40401, `Subject '${subject}' not found.`)
    if (version === undefined) return [200, versions.map((found) => found.version)]
    const found = version === "latest" ? versions.at(-1) : versions[Number(version) - 1]
    if (found === undefined) return error(404, 40402, `Version ${version} not found.`)
    return [200, { subject, ...found }]
  }

  #compatible(subject: string, version: string | undefined): Answer {
    if (version === undefined) return [200, { is_compatible: true }]
    const versions = this.#subjects.get(subject)
    if (versions === undefined) return error(404, 40401, `Subject '${subject}' not found.`)
    if (version !== "latest" && versions[Number(version) - 1] === undefined)
      return error(404, 40402, `Version ${version} not found.`)
    return [200, { is_compatible: true, messages: [] }]
  }

  #configured(method: string, subject: string | undefined, body: unknown): Answer {
    if (method === "PUT") {
      const { compatibility } = body as { readonly compatibility: string }
      if (subject === undefined) this.#config = compatibility
      else this.#configs.set(subject, compatibility)
      return [200, { compatibility }]
    }
    if (subject === undefined) return [200, { compatibilityLevel: this.#config }]
    const own = this.#configs.get(subject)
    if (own === undefined)
      return error(404, 40408, `Subject '${subject}' does not have subject-level compatibility configured`)
    return [200, { compatibilityLevel: own }]
  }
}
