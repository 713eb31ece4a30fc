/** Kafka's own classes, as a program that reads and writes bytes for tests. */
import { runJava, serverNeed } from "@millrace/servers"

// The same from src and from dist.
const source = new URL("../../src/protocol/oracle.java", import.meta.url)

/** Why Kafka's classes cannot run here; `undefined` when they can. */
export async function oracleNeed(): Promise<string | undefined> {
  return serverNeed("kafka", { to: "start" })
}

/** One answer a question, in order (see `oracle.java`). One process answers them all. */
export async function askOracle(questions: readonly string[]): Promise<string[]> {
  const { stdout } = await runJava(source, [], { input: `${questions.join("\n")}\n` })
  const answers = stdout.trimEnd().split("\n")
  if (answers.length !== questions.length) {
    throw new Error(`the oracle answered ${answers.length} of ${questions.length} questions`)
  }
  return answers
}
