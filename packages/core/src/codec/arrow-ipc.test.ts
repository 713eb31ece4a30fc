/** Arrow IPC as it is checked before it is sent: table 1.12 of the options, and Arrow's own format specification. */
import assert from "node:assert/strict"
import { Buffer } from "node:buffer"
import { describe, test } from "node:test"
import { InvalidError } from "@millrace/contract"
import fc from "fast-check"
import { checkArrowIpc } from "./arrow-check.ts"
import {
  dictionary,
  everyType,
  jsFile,
  jsStream,
  listElementName,
  nullable,
  simpleFile,
  simpleStream,
  withMetadata,
} from "./arrow-fixtures.test-support.ts"
import { describeArrowIpc } from "./arrow-ipc.ts"

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex")
const fingerprint = (bytes: Uint8Array): string => hex(describeArrowIpc(bytes).schemaFingerprint)
const refused = (bytes: Uint8Array, says: RegExp): void => {
  assert.throws(
    () => describeArrowIpc(bytes),
    (error) => error instanceof InvalidError && says.test(error.message),
  )
}

describe("what is told of whole bytes", () => {
  test("format, size, fields, batches and rows", () => {
    const { schemaFingerprint, ...told } = describeArrowIpc(simpleStream)
    assert.deepEqual(told, {
      format: "stream",
      encodedBytes: simpleStream.length,
      fields: 4,
      recordBatches: 2,
      rows: 3n,
      dictionaries: 0,
    })
    assert.equal(schemaFingerprint.length, 32)
    const file = describeArrowIpc(simpleFile)
    assert.deepEqual([file.format, file.recordBatches, file.rows], ["file", 2, 3n])
    assert.deepEqual([describeArrowIpc(dictionary).dictionaries, describeArrowIpc(everyType).fields], [1, 11])
  })

  test("bytes that are a view in the middle of others", () => {
    const wide = new Uint8Array(simpleStream.length + 20).fill(255)
    wide.set(simpleStream, 7)
    assert.deepEqual(describeArrowIpc(wide.subarray(7, 7 + simpleStream.length)), describeArrowIpc(simpleStream))
  })

  test("a stream may end without its marker", () => {
    assert.equal(describeArrowIpc(simpleStream.subarray(0, -8)).recordBatches, 2)
  })
})

describe("the fingerprint", () => {
  test("is what its description says, whatever wrote the bytes", () => {
    // SHA-256 of "millrace-arrow-schema-1\n" and the JSON of the four fields, worked out by hand.
    const expected = "6e3efa6bfefbc236079d28d7800a5ffdf11fa7b19f9c2133500273ca19f39bbc"
    for (const bytes of [simpleStream, simpleFile, withMetadata, listElementName, jsStream]) {
      assert.equal(fingerprint(bytes), expected)
    }
  })

  test("does not depend on ids of dictionaries, nor on where a file keeps its schema", () => {
    assert.equal(fingerprint(jsFile), fingerprint(dictionary))
  })

  test("tells apart what differs in one flag", () => {
    assert.notEqual(fingerprint(nullable), fingerprint(simpleStream))
    assert.notEqual(fingerprint(dictionary), fingerprint(simpleStream))
  })
})

describe("what is refused", () => {
  test("bytes that are something else", () => {
    refused(new Uint8Array(0), /no schema/)
    refused(new TextEncoder().encode('{"not":"arrow"}'), /no continuation marker at byte 0/)
    refused(new Uint8Array([255, 255, 255, 255, 0, 0, 0, 0]), /no schema/)
    assert.throws(() => describeArrowIpc("text" as never), InvalidError)
  })

  test("a stream that is cut off anywhere but between its messages", () => {
    const whole = new Set<number>()
    for (let end = 0; end < simpleStream.length; end++) {
      try {
        describeArrowIpc(simpleStream.subarray(0, end))
        whole.add(end)
      } catch (error) {
        assert.ok(error instanceof InvalidError, `cut at ${end}: ${String(error)}`)
      }
    }
    assert.equal(whole.size, 3, "behind the schema, behind the first batch, behind the second")
  })

  test("a file that is cut off anywhere", () => {
    for (let end = 0; end < simpleFile.length; end++) {
      assert.throws(() => describeArrowIpc(simpleFile.subarray(0, end)), InvalidError)
    }
  })

  test("bytes behind the end, a second schema, batches before the schema", () => {
    const schemaEnd = 8 + new DataView(simpleStream.buffer).getInt32(4, true)
    const schema = simpleStream.subarray(0, schemaEnd)
    const rest = simpleStream.subarray(schemaEnd)
    refused(Buffer.concat([simpleStream, new Uint8Array(4)]), /4 bytes follow its end/)
    refused(Buffer.concat([simpleStream, simpleStream]), /bytes follow its end/)
    refused(Buffer.concat([schema, schema]), /second schema/)
    refused(rest, /the schema comes first/)
  })

  test("a file whose footer lists other batches than it holds", () => {
    const schemaEnd = 8 + 8 + new DataView(simpleFile.buffer).getInt32(12, true)
    const marker = [255, 255, 255, 255, 0, 0, 0, 0]
    const trailer = simpleFile.subarray(simpleFile.length - 10)
    const footerBytes = new DataView(trailer.buffer, trailer.byteOffset).getInt32(0, true)
    const footer = simpleFile.subarray(simpleFile.length - 10 - footerBytes)
    refused(
      Buffer.concat([simpleFile.subarray(0, schemaEnd), new Uint8Array(marker), footer]),
      /footer lists 2 record batches/,
    )
  })

  test("a body that ends behind the bytes, or before it begins", () => {
    const view = new DataView(simpleStream.buffer, simpleStream.byteOffset)
    const starts = [...simpleStream.keys()].filter((at) => at % 8 === 0 && view.getInt32(at, true) === -1)
    const [, first, second] = starts as [number, number, number]
    const body = first + 8 + view.getInt32(first + 4, true)
    const field = [...simpleStream.keys()].find(
      (at) => at > first + 8 && view.getBigInt64(at, true) === BigInt(second - body),
    ) as number
    assert.ok(field < body)
    for (const bodyBytes of [BigInt(first - body), -1n, 1n << 40n]) {
      const damaged = simpleStream.slice()
      new DataView(damaged.buffer).setBigInt64(field, bodyBytes, true)
      refused(damaged, new RegExp(`has a body of ${bodyBytes} bytes`))
    }
  })

  test("damage is an InvalidError or goes unseen, and never anything else", () => {
    const samples = [simpleStream, simpleFile, dictionary, everyType, jsFile]
    fc.assert(
      fc.property(
        fc.constantFrom(...samples),
        fc.array(fc.record({ at: fc.nat(1999), byte: fc.nat(255) }), { minLength: 1, maxLength: 4 }),
        (sample, damages) => {
          const damaged = sample.slice()
          for (const { at, byte } of damages) damaged[at % damaged.length] = byte
          try {
            describeArrowIpc(damaged)
          } catch (error) {
            assert.ok(error instanceof InvalidError, String(error))
          }
        },
      ),
      { numRuns: 1000 },
    )
  })
})

describe("what is expected", () => {
  test("is compared, and a difference names both", () => {
    const told = describeArrowIpc(simpleStream)
    const { format, ...expected } = told
    assert.deepEqual(checkArrowIpc(simpleStream, expected), told)
    const other = describeArrowIpc(nullable).schemaFingerprint
    assert.throws(
      () => checkArrowIpc(simpleStream, { schemaFingerprint: other }),
      (error) =>
        error instanceof InvalidError &&
        error.message.includes(hex(other)) &&
        error.message.includes(hex(told.schemaFingerprint)),
    )
    assert.throws(() => checkArrowIpc(simpleStream, { rows: 4n }), /has 3 rows, not 4/)
    assert.throws(() => checkArrowIpc(simpleStream, { encodedBytes: 1 }), /has 1240 bytes, not 1/)
    assert.throws(() => checkArrowIpc(simpleStream, { columns: 1 } as never), /unknown option "columns"/)
  })
})
