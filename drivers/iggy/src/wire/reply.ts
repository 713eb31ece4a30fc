/** What a reply says: a payload, or the code of a refusal (iggy-wire.md: Replies). */
import { MillraceError } from "@millrace/contract"
import { headerBytes, type ReplyHeader, readReplyHeader } from "./header.ts"
import { isResultFramed } from "./operation.ts"

export interface Reply {
  readonly header: ReplyHeader
  /** 0, or why the request was refused. */
  readonly code: number
  /** Behind the results, where there are any. A view of the frame. */
  readonly payload: Buffer
}

const noBytes = Buffer.alloc(0)

/** @throws MillraceError `protocol` when a list of results does not hold what it counts */
export function readReply(frame: Buffer): Reply {
  const header = readReplyHeader(frame)
  const body = frame.subarray(headerBytes)
  if (header.status !== 0) return { header, code: header.status, payload: noBytes }
  if (!isResultFramed(header.operation, body.length)) return { header, code: 0, payload: body }
  const count = body.length < 4 ? 1 : body.readUInt32LE(0)
  if (count === 0) return { header, code: 0, payload: body.subarray(4) }
  if (body.length < 4 + count * 8) {
    throw new MillraceError("protocol", `a reply of Apache Iggy counts ${count} results in ${body.length} bytes`)
  }
  const code = body.readUInt32LE(8)
  return { header, code: code === 0 ? 1 : code, payload: noBytes }
}
