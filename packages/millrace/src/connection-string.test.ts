import assert from "node:assert/strict"
import { test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import type { ConnectionString } from "./connection-string.ts"
import { parseConnectionString } from "./connection-string.ts"

const directories: readonly (readonly [text: string, path: string])[] = [
  ["file:./data", "./data"],
  ["file:../data", "../data"],
  ["file:data", "data"],
  ["file:data/of/mine", "data/of/mine"],
  ["file:/var/lib/app", "/var/lib/app"],
  ["file:///var/lib/app", "/var/lib/app"],
  ["file://localhost/var/lib/app", "/var/lib/app"],
  ["FILE:./Data", "./Data"],
  ["file:./my%20data", "./my data"],
  ["file:./my data", "./my data"],
  ["file:./a@b,c:d", "./a@b,c:d"],
  ["file:./100%25", "./100%"],
  ["file:./what%3F", "./what?"],
  ["file:./größe/%E6%9D%B1", "./größe/東"],
  ["memory:", ""],
]

for (const [text, path] of directories) {
  test(`${text} names the path ${JSON.stringify(path)} and no host`, () => {
    const parsed = parseConnectionString(text)
    assert.equal(parsed.path, path)
    assert.equal(parsed.hasAuthority, false)
    assert.deepEqual(parsed.hosts, [])
    assert.equal(parsed.options.size, 0)
    assert.equal(parsed.username, undefined)
  })
}

test("several hosts, user, password, path and options are taken apart", () => {
  const parsed = parseConnectionString(
    "kafka://ann:p%40ss%2Fword@broker-1:9092,broker-2:9093,[2001:db8::1]:9094,[::1]/a%20b/c?linger=5s&name=x%26y",
  )
  assert.equal(parsed.scheme, "kafka")
  assert.equal(parsed.username, "ann")
  assert.equal(parsed.password, "p@ss/word")
  assert.deepEqual(parsed.hosts, [
    { host: "broker-1", port: 9092 },
    { host: "broker-2", port: 9093 },
    { host: "2001:db8::1", port: 9094 },
    { host: "::1" },
  ])
  assert.equal(parsed.path, "/a b/c")
  assert.deepEqual(
    [...parsed.options],
    [
      ["linger", "5s"],
      ["name", "x&y"],
    ],
  )
})

test("a user without a password is a token, and an empty password is one", () => {
  const token = parseConnectionString("iggy://t0ken@localhost:8090")
  assert.equal(token.username, "t0ken")
  assert.equal("password" in token, false)
  assert.equal(parseConnectionString("iggy://ann:@localhost").password, "")
})

test("the last @ of the authority ends the user", () => {
  const parsed = parseConnectionString("iggy://ann:a@b@localhost")
  assert.equal(parsed.password, "a@b")
  assert.deepEqual(parsed.hosts, [{ host: "localhost" }])
})

test("a plus stands for itself", () => {
  assert.equal(parseConnectionString("file:./a+b?x=1+2").options.get("x"), "1+2")
})

const refused: readonly (readonly [text: string, message: RegExp])[] = [
  ["", /is empty.*file:\.\/data/],
  ["./data", /"\.\/data" has no scheme.*file:\.\/data/],
  [" file:./data", /white space/],
  ["file:./da\nta", /control character/],
  ["file:./da\u0000ta", /control character/],
  ["file:./a%00b", /path.*zero byte/],
  ["file:./a#b", /"#".*%23/],
  ["file:./\ud800", /Unicode/],
  ["file://data", /file:\.\/data.*file:\/\/\/data/],
  ["file://host/data", /directory of this machine/],
  ["file:./100%", /percent sign.*%25/],
  ["file:./a%ff", /percent sign.*UTF-8/],
  ["kafka://", /names no host/],
  ["kafka:///topic", /names no host/],
  ["kafka://a,,b", /not a host name/],
  ["kafka://a b", /not a host name/],
  ["kafka://::1:9092", /more than one colon.*brackets/],
  ["kafka://[::g]:9092", /not an IPv6/],
  ["kafka://a:0", /port of host "a".*1 to 65535/],
  ["kafka://a:65536", /port of host "a".*1 to 65535/],
  ["kafka://a:", /port of host "a".*1 to 65535/],
  ["kafka://@a", /without a user/],
  ["kafka://:secret@a", /without a user/],
  ["kafka://u:se/cret@host", /"@" behind its hosts.*%2F/],
  ["kafka://u:se?cret=1&cret=2@host", /"@" behind its hosts/],
  ["file:./d?", /name=value/],
  ["file:./d?flag", /name=value/],
  ["file:./d?=1", /name=value/],
  ["file:./d?a:b=1", /name=value.*letters, digits/],
  ["file:./d?a=1&&b=2", /name=value/],
  ["file:./d?a=1&a=2", /"a" is given twice/],
  ["file:./d?a=%zz", /option "a".*%25/],
]

for (const [text, message] of refused) {
  test(`${JSON.stringify(text)} is refused`, () => {
    assert.throws(
      () => parseConnectionString(text),
      (error) => error instanceof InvalidError && message.test(error.message),
    )
  })
}

test("what is not a text is refused", () => {
  assert.throws(() => parseConnectionString(new URL("file:./data") as unknown as string), /is a text, not object/)
})

const word = fc.string({
  unit: fc.constantFrom(..."abcdefghijklmnopqrstuvwxyz0123456789-_."),
  minLength: 1,
  maxLength: 12,
})
const anyText = fc
  .string({ unit: "binary", minLength: 1, maxLength: 20 })
  .filter((text) => text.isWellFormed() && !text.includes("\0"))
const port = fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: undefined })
const host = fc.oneof(
  fc.record({ host: word, port }),
  fc.record({ host: fc.ipV6().filter((ip) => !ip.includes(".")), port }),
)

const servers = fc.record({
  scheme: fc.constantFrom("kafka", "nats", "iggy"),
  user: fc.option(fc.tuple(anyText, fc.option(anyText, { nil: undefined })), { nil: undefined }),
  hosts: fc.array(host, { minLength: 1, maxLength: 4 }),
  path: fc.option(anyText, { nil: undefined }),
  options: fc.uniqueArray(fc.tuple(word, fc.oneof(anyText, fc.constant(""))), {
    selector: ([name]) => name,
    maxLength: 4,
  }),
})

function write(parts: typeof servers extends fc.Arbitrary<infer T> ? T : never): string {
  const escape = encodeURIComponent
  const [name, password] = parts.user ?? []
  const user = name === undefined ? "" : `${escape(name)}${password === undefined ? "" : `:${escape(password)}`}@`
  const hosts = parts.hosts.map(({ host, port }) => {
    const shown = host.includes(":") ? `[${host}]` : host
    return port === undefined ? shown : `${shown}:${port}`
  })
  const path = parts.path === undefined ? "" : `/${escape(parts.path)}`
  const options = parts.options.map(([key, value]) => `${key}=${escape(value)}`)
  return `${parts.scheme}://${user}${hosts.join(",")}${path}${options.length === 0 ? "" : `?${options.join("&")}`}`
}

test("any parts, once escaped and written, are read back as they were", () => {
  fc.assert(
    fc.property(servers, (parts) => {
      const parsed = parseConnectionString(write(parts))
      assert.equal(parsed.username, parts.user?.[0])
      assert.equal(parsed.password, parts.user?.[1])
      assert.deepEqual(
        parsed.hosts.map(({ host, port }) => ({ host, port })),
        parts.hosts.map(({ host, port }) => ({ host, port })),
      )
      assert.equal(parsed.path, parts.path === undefined ? "" : `/${parts.path}`)
      assert.deepEqual([...parsed.options], parts.options)
    }),
  )
})

test("any directory, once escaped and written, is read back as it was", () => {
  fc.assert(
    fc.property(anyText, (path) => {
      assert.equal(parseConnectionString(`file:./${encodeURIComponent(path)}`).path, `./${path}`)
    }),
  )
})

test("any text is either read or refused with an InvalidError", () => {
  const pieces = fc.array(
    fc.oneof(
      fc.constantFrom("file:", "kafka:", "//", "/", "@", ":", "?", "&", "=", "%", "[", "]", ",", "::1", "9092"),
      anyText,
    ),
    { maxLength: 12 },
  )
  fc.assert(
    fc.property(pieces, (list) => {
      let parsed: ConnectionString | undefined
      try {
        parsed = parseConnectionString(list.join(""))
      } catch (error) {
        assert.ok(error instanceof InvalidError, String(error))
        return
      }
      assert.match(parsed.scheme, /^[a-z]/)
    }),
  )
})

test("no error shows a password, wherever the text is broken", () => {
  const secret = "Sw0rdfishZZ"
  const breaks = fc.constantFrom(
    "",
    "/",
    "?",
    "#",
    "%",
    "%f",
    ":",
    ",",
    "[",
    "&",
    "=",
    "?x",
    "?x=1&x=1",
    " ",
    "\u0001",
    "@",
    "é",
  )
  const shape = fc.tuple(
    breaks,
    breaks,
    breaks,
    breaks,
    fc.constantFrom("@", ""),
    fc.constantFrom("kafka", "memory", "file"),
  )
  fc.assert(
    fc.property(shape, ([a, b, c, d, at, scheme]) => {
      fc.pre(scheme !== "file" || ![a, b].join("").includes("?"))
      fc.pre(at === "@" || ![a, b].join("").includes("?"))
      const text = `${scheme}://${a}user:${b}${secret}${c}${secret}${d}${at}host:1`
      try {
        parseConnectionString(text)
      } catch (error) {
        assert.ok(error instanceof InvalidError)
        const shown = `${error.message} ${JSON.stringify(error.context)} ${String(error.cause)}`
        assert.equal(shown.includes(secret), false, `${text} → ${shown}`)
      }
    }),
    { numRuns: 2_000 },
  )
})
