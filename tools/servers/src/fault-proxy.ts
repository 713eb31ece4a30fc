import { once } from "node:events"
import type { Server, Socket } from "node:net"
import { createServer } from "node:net"
import type { CutRule, Fault } from "./fault.ts"
import { ArmedFault } from "./fault.ts"
import type { Conditions, Direction, Script } from "./proxied-connection.ts"
import { ProxiedConnection } from "./proxied-connection.ts"

/** Where a proxy leads to. */
export interface FaultProxyOptions {
  readonly to: { readonly host?: string; readonly port: number }
  /** The proxy's own port; by default any free one. */
  readonly port?: number
}

/**
 * A TCP proxy on 127.0.0.1 that breaks connections in the ways that networks do. Everything that is set holds for the connections that
 * are open and for those to come.
 */
export class FaultProxy implements AsyncDisposable {
  readonly port: number
  /** Called with each chunk before it is passed on; absent: all pass. What it throws cuts the connection. */
  script: Script | undefined
  readonly #to: { readonly host: string; readonly port: number }
  #listener: Server
  readonly #connections = new Set<ProxiedConnection>()
  /** Of every connection whose sockets are not both closed. */
  readonly #closing = new Set<Promise<unknown>>()
  readonly #faults = new Set<ArmedFault>()
  readonly #conditions: Conditions
  readonly #bytes: { toServer: number; toClient: number } = { toServer: 0, toClient: 0 }
  #accepted = 0

  private constructor(listener: Server, port: number, to: { readonly host: string; readonly port: number }) {
    this.port = port
    this.#to = to
    this.#listener = listener
    listener.on("connection", this.#accept)
    this.#conditions = {
      toServer: { stalled: false, delayMs: 0, bytesPerSecond: undefined, dropBytes: 0 },
      toClient: { stalled: false, delayMs: 0, bytesPerSecond: undefined, dropBytes: 0 },
      judge: (chunk, connection) => {
        for (const fault of this.#faults) {
          const verdict = fault.judge(chunk, connection)
          if (verdict !== undefined) return verdict
        }
        return this.script?.(chunk) ?? "pass"
      },
      passed: (direction, size) => {
        this.#bytes[direction] += size
      },
      ended: (connection) => {
        this.#connections.delete(connection)
        for (const fault of this.#faults) fault.forget(connection)
      },
    }
  }

  /** Listens. Connections are accepted whether or not the server behind is there: one that cannot be led on is reset. */
  static async open({ to, port = 0 }: FaultProxyOptions): Promise<FaultProxy> {
    const listener = await listen(port)
    const address = listener.address()
    if (address === null || typeof address === "string") throw new Error("a TCP listener has a port")
    return new FaultProxy(listener, address.port, { host: to.host ?? "127.0.0.1", port: to.port })
  }

  /** How many connections were accepted since it was opened: one for each attempt of a client to connect. */
  get accepted(): number {
    return this.#accepted
  }

  /** How many connections are open. */
  get open(): number {
    return this.#connections.size
  }

  /** Bytes passed on so far. */
  get bytes(): { readonly toServer: number; readonly toClient: number } {
    return { ...this.#bytes }
  }

  /** Cuts every open connection now: both sides see its end, or a reset. New ones are accepted. */
  cut(how: "end" | "reset" = "end"): void {
    for (const connection of [...this.#connections]) connection.cut(how)
  }

  /**
   * From now on new connections are refused (nobody listens), or accepted again on the same port. Open ones stay. Refused attempts
   * are not counted: to count them, end the server behind instead.
   */
  async refuse(on: boolean): Promise<void> {
    if (on === !this.#listener.listening) return
    if (on) {
      // Its promise would wait for the open connections; the port is free at once.
      this.#listener.close()
    } else {
      this.#listener = await listen(this.port)
      this.#listener.on("connection", this.#accept)
    }
  }

  /** Nothing is read or passed on in a direction (both when absent); what comes waits in the sockets. */
  stall(direction?: Direction): void {
    for (const one of both(direction)) this.#conditions[one].stalled = true
    this.#changed()
  }

  /** Ends a stall: what waited goes on. */
  flow(direction?: Direction): void {
    for (const one of both(direction)) this.#conditions[one].stalled = false
    this.#changed()
  }

  /** Each chunk arrives so much later, as on a longer line: chunks that follow each other are under way together. 0 ends it. */
  delay(delayMs: number, direction?: Direction): void {
    for (const one of both(direction)) this.#conditions[one].delayMs = delayMs
    this.#changed()
  }

  /** At most so many bytes a second for each connection; `undefined` ends it. */
  throttle(bytesPerSecond: number | undefined, direction?: Direction): void {
    for (const one of both(direction)) this.#conditions[one].bytesPerSecond = bytesPerSecond
    this.#changed()
  }

  /** The next so many bytes of a direction vanish from the stream, on whatever connection they come. */
  dropBytes(count: number, direction: Direction): void {
    this.#conditions[direction].dropBytes += count
  }

  /**
   * Cuts a connection when the first answer after a request comes back: the server has done it, and the client does not hear. The answer
   * is dropped.
   */
  cutBeforeReply(rule: CutRule = {}): Fault {
    return this.#arm(rule, "before")
  }

  /** Cuts a connection right behind the first answer after a request: the client has heard it, and what follows is lost. */
  cutAfterReply(rule: CutRule = {}): Fault {
    return this.#arm(rule, "after")
  }

  /** Cuts everything and listens no more. */
  async close(): Promise<void> {
    const { listening } = this.#listener
    const closed = listening ? once(this.#listener, "close") : undefined
    if (listening) this.#listener.close()
    this.cut("reset")
    await Promise.all([closed, ...this.#closing])
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #arm(rule: CutRule, when: "before" | "after"): Fault {
    const fault = new ArmedFault(rule, when, () => this.#faults.delete(fault))
    this.#faults.add(fault)
    return fault
  }

  readonly #accept = (client: Socket): void => {
    const connection = new ProxiedConnection(this.#accepted++, client, {
      to: this.#to,
      conditions: this.#conditions,
    })
    this.#connections.add(connection)
    const closing = connection.closed.finally(() => this.#closing.delete(closing))
    this.#closing.add(closing)
  }

  #changed(): void {
    for (const connection of this.#connections) connection.wake()
  }
}

async function listen(port: number): Promise<Server> {
  const listener = createServer({ allowHalfOpen: true, noDelay: true })
  listener.listen(port, "127.0.0.1")
  await once(listener, "listening")
  // A forgotten proxy must not keep a test process alive.
  listener.unref()
  return listener
}

function both(direction: Direction | undefined): readonly Direction[] {
  return direction === undefined ? ["toServer", "toClient"] : [direction]
}
