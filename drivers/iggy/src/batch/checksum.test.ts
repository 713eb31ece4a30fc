import assert from "node:assert/strict"
import { describe, it } from "node:test"
import { xxh3 } from "@node-rs/xxhash"
import { exchanges } from "../codec/exchanges.test-support.ts"
import { keyHash, messageChecksums } from "./checksum.ts"

describe("the hashes of the protocol", () => {
  it("give the published vectors of XXH3-64", () => {
    const vectors: readonly (readonly [string, string])[] = [
      ["", "2d06800538d394c2"],
      ["a", "e6c632b61e964e1f"],
      ["abc", "78af5f94892f3950"],
      ["hello", "9555e8555c62dcfd"],
      ["iggy-iggy-iggy-i", "f57cc20e5aaea768"],
      ["x".repeat(100), "c90984ffdf50ce42"],
      ["x".repeat(200), "50ef124fb1e4de53"],
      ["x".repeat(1025), "9cd2e05a61b8a761"],
    ]
    for (const [text, expected] of vectors) {
      const bytes = Buffer.from(`--${text}--`)
      assert.equal(xxh3.xxh64(bytes.subarray(2, -2)).toString(16).padStart(16, "0"), expected)
    }
  })

  it("are the same for short messages as for others, of every length and many at once", () => {
    const lengths = Array.from({ length: 420 }, (_, length) => length)
    const messages = [...lengths, ...lengths.toReversed(), ...Array.from({ length: 9000 }, (_, i) => i % 190)].map(
      (payload, i) => {
        const message = Buffer.alloc(48 + payload, (i * 37) & 0xff)
        for (let at = 0; at < message.length; at++) message[at] = (at * 131 + i * 7) & 0xff
        message.writeUInt32LE(0, 32)
        message.writeUInt32LE(payload, 36)
        return message
      },
    )
    const bytes = Buffer.concat([Buffer.alloc(5), ...messages])
    const starts = new Uint32Array(messages.length)
    let at = 5
    messages.forEach((message, i) => {
      starts[i] = at
      at += message.length
    })
    const hashes = messageChecksums({ bytes, starts, end: at })
    messages.forEach((message, i) => {
      const hash = (BigInt(hashes[i * 2 + 1] as number) << 32n) | BigInt(hashes[i * 2] as number)
      assert.equal(hash, xxh3.xxh64(message.subarray(8)), `message ${i} of ${message.length} bytes`)
    })
  })

  it("send a key where the server would", () => {
    assert.equal(keyHash(Buffer.from("key-1")), 0x39636a09)
    const sends = exchanges.filter((one) => one.file === "send_messages" && one.name.startsWith("messages_key_"))
    assert.equal(sends.length, 3)
    for (const { request, response } of sends) {
      const key = keyOf(request)
      const partition = response.readUInt32LE(256 + 4 + 8)
      assert.equal(keyHash(key) % 3, partition, key.toString())
    }
  })
})

/** The key in the partitioning of a recorded send: behind two names of the target. */
function keyOf(request: Buffer): Buffer {
  let at = 256 + 4
  for (let name = 0; name < 2; name++) at += 2 + (request[at + 1] as number)
  assert.equal(request[at], 3)
  return request.subarray(at + 2, at + 2 + (request[at + 1] as number))
}
