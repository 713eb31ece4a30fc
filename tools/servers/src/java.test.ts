import assert from "node:assert/strict"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { runJava } from "./java.ts"
import { serverNeed } from "./need.ts"

const program = `
import org.apache.kafka.common.TopicPartition;
class Helper { static String join(String[] words) { return String.join("+", words); } }
final class Shout {
  public static void main(String[] args) throws Exception {
    if (args.length == 0) { System.err.println("nothing to say"); System.exit(3); }
    System.out.print(Helper.join(args) + " " + new String(System.in.readAllBytes()) + " " + new TopicPartition("t", 7));
  }
}
`

test("a Java source file is compiled against Kafka's classes and run", { timeout: 240_000 }, async (t) => {
  const reason = await serverNeed("kafka", { to: "start" })
  if (reason !== undefined) {
    t.skip(`needs kafka: ${reason}`)
    return
  }
  const directory = await mkdtemp(join(tmpdir(), "millrace-java-test-"))
  t.after(() => rm(directory, { recursive: true, force: true }))
  const file = join(directory, "shout.java")
  await writeFile(file, program)
  const { stdout } = await runJava(file, ["a", "b"], { input: "typed" })
  assert.match(stdout, /^a\+b typed t-7$/)
  await assert.rejects(runJava(file), /exit code 3:\nnothing to say/)
  await writeFile(file, "class Broken { public static void main(String[] args) { return 1; } }")
  await assert.rejects(runJava(file), /javac .*exit code 1/s)
})
