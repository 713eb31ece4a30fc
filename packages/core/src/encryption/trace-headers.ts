/**
 * W3C trace context stays readable beside an encrypted record: it is for those who watch records pass, whoever they are, and says
 * nothing of the content. It is not authenticated. Every other header is encrypted, Millrace's own metadata with it.
 */
import { DecodeError, Headers } from "@millrace/contract"

const readable: ReadonlySet<string> = new Set(["traceparent", "tracestate"])

/** Whether a header stays as it is. */
function isReadable(name: string): boolean {
  return readable.has(name)
}

/** The headers that are encrypted, and those that are not, each in order. */
export function splitHeaders(headers: Headers): { readonly secret: Headers; readonly open: Headers } {
  const open = [...headers].filter(([name]) => isReadable(name))
  if (open.length === 0) return { secret: headers, open: Headers.empty }
  return { secret: Headers.ofStored([...headers].filter(([name]) => !isReadable(name))), open: Headers.ofStored(open) }
}

/** What a reader sees: what was decrypted, then what stood beside it. Headers that somebody else has added are left out. */
export function joinHeaders(decrypted: Headers | DecodeError, beside: Headers | DecodeError): Headers | DecodeError {
  if (decrypted instanceof DecodeError || beside instanceof DecodeError || beside.size === 0) return decrypted
  const { open } = splitHeaders(beside)
  if (open.size === 0) return decrypted
  return decrypted.size === 0 ? open : Headers.ofStored([...decrypted, ...open])
}
