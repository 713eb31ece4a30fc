import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { cached } from "./cache.ts"
import { kafkaJars } from "./kafka-program.ts"
import type { Output, RunOptions } from "./programs.ts"
import { run } from "./programs.ts"

/** The class path of Kafka's own clients, tools and server: for programs that compare with them. */
export async function kafkaClassPath(): Promise<string> {
  return join((await kafkaJars()).directory, "*")
}

/**
 * Compiles one Java source file against Kafka's classes, once for each content, and answers how it is started. The class with `main` is the
 * one that is started; it need not be public, so the file may have any name.
 */
export async function javaProgram(
  source: URL | string,
  args: readonly string[] = [],
): Promise<{ readonly command: string; readonly args: readonly string[] }> {
  const file = typeof source === "string" ? source : fileURLToPath(source)
  const classPath = await kafkaClassPath()
  const text = await readFile(file)
  const hash = createHash("sha256").update(text).update(classPath).digest("hex").slice(0, 32)
  const classes = await cached(`java-${hash}`, async (directory) => {
    await run("javac", ["-cp", classPath, "-d", directory, "-encoding", "UTF-8", file])
  })
  const main = mainClass(text.toString(), file)
  return { command: "java", args: [...hurried, "-cp", `${classPath}:${classes}`, main, ...args] }
}

/** Runs such a program to its end. @throws Error with what it said, when it does not compile or its exit code is not 0 */
export async function runJava(
  source: URL | string,
  args: readonly string[] = [],
  options: RunOptions = {},
): Promise<Output> {
  const program = await javaProgram(source, args)
  return run(program.command, program.args, options)
}

const hurried = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=ERROR"]

/** The class that has `main`: the last that stands before it. */
function mainClass(text: string, file: string): string {
  const before = text.split(/static\s+void\s+main\s*\(/)
  if (before.length < 2) throw new Error(`${file} has no main method`)
  const classes = [...(before[0] ?? "").matchAll(/^(?:public\s+)?(?:final\s+)?class\s+(\w+)/gm)]
  const name = classes.at(-1)?.[1]
  if (name === undefined) throw new Error(`${file} has no class around its main method`)
  const packageName = /^package\s+([\w.]+)\s*;/m.exec(text)?.[1]
  return packageName === undefined ? name : `${packageName}.${name}`
}
