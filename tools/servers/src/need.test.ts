import assert from "node:assert/strict"
import { test } from "node:test"
import { run } from "./programs.ts"

/** Asks in a process with other variables. */
async function need(kind: string, options: string, env: Readonly<Record<string, string>>): Promise<string> {
  const module = new URL("./need.ts", import.meta.url).href
  const program = `const { serverNeed } = await import(${JSON.stringify(module)})
    console.log(String(await serverNeed(${JSON.stringify(kind)}, ${options})))`
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program], { env })
  return stdout.trim()
}

const bare = { PATH: "/nonexistent", MILLRACE_SERVERS_CACHE: "/nonexistent", KAFKA_HOME: "" }

test("what is missing is named", async () => {
  assert.equal(await need("kafka", "{}", { ...bare, MILLRACE_KAFKA_URL: "" }), "no java on the PATH")
  assert.match(
    await need("nats", "{}", { ...bare, MILLRACE_NATS_URL: "" }),
    /^no nats-server 2\.15 on the PATH, and neither go nor pip/,
  )
  assert.match(await need("iggy", "{}", { ...bare, MILLRACE_IGGY_URL: "" }), /^no iggy-server on the PATH/)
})

test("a server that somebody else runs can be used, but not started", async () => {
  const env = { ...bare, MILLRACE_IGGY_URL: "iggy://iggy:iggy@127.0.0.1:8090" }
  assert.equal(await need("iggy", "{}", env), "undefined")
  assert.match(await need("iggy", '{ to: "start" }', env), /^no iggy-server/)
})
