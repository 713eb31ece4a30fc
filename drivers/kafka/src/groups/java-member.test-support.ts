import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { javaProgram } from "@millrace/servers"
import type { Handled } from "./group-rig.test-support.ts"

/** Kafka's own consumer as a member of a group, in a process of its own. */
export class JavaMember {
  /** What it has. */
  held: readonly number[] = []
  /** What it found stored of each partition when it was given it: the number, or "none". */
  readonly committed: Map<number, string> = new Map()
  readonly #child: ChildProcess
  readonly #ended: Promise<number | null>

  /** @param log Gets what it reads. */
  static async start(
    settings: {
      readonly url: string
      readonly group: string
      /** By Kafka's name. */
      readonly topic: string
      readonly protocol: "consumer" | "classic"
      /** Class names, or `default`. */
      readonly assignor?: string
    },
    log: Handled[],
  ): Promise<JavaMember> {
    const { url, group, topic, protocol, assignor = "default" } = settings
    const args = [url.replace("kafka://", ""), group, topic, protocol, assignor]
    const program = await javaProgram(new URL("group-peer.java", import.meta.url), args)
    return new JavaMember(spawn(program.command, program.args, { stdio: ["pipe", "pipe", "inherit"] }), log)
  }

  private constructor(child: ChildProcess, log: Handled[]) {
    this.#child = child
    this.#ended = new Promise((resolve) => child.once("exit", resolve))
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
    lines.on("line", (line) => {
      const [word, ...rest] = line.split(" ")
      if (word === "held") this.held = rest.filter((text) => text !== "").map(Number)
      if (word === "committed") this.committed.set(Number(rest[0]), rest[1] as string)
      if (word === "record") log.push({ partition: Number(rest[0]), offset: BigInt(rest[1] as string), by: "java" })
    })
  }

  /** Lets it leave; resolves with its exit code. */
  leave(): Promise<number | null> {
    this.#child.stdin?.write("x")
    return this.#ended
  }

  /** For the end of a test that failed. */
  kill(): void {
    this.#child.kill("SIGKILL")
  }
}
