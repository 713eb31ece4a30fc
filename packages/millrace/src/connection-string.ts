/**
 * Connection strings, read by a parser of our own: `new URL` turns `file:./data` into `/data`, and knows one host only.
 *
 *     scheme:path[?options]                                    file:./data   file:/var/lib/app   memory:
 *     scheme://[user[:password]@]host[:port][,host[:port]…][/path][?options]
 *
 * Path, user, password and options are percent-decoded. `@`, `#` and, in a path, `?` stand for themselves only as `%40`, `%23`, `%3F`.
 * No error shows a user, a password or the value of an option that is not known.
 */
import { isIPv6 } from "node:net"
import { InvalidError } from "@millrace/contract"

/** A connection string in its parts. Options are still text: only the driver's table says what they mean. */
export interface ConnectionString {
  /** In lower case, without the colon. */
  readonly scheme: string
  /** Whether the text had `//` and so names servers. Always false for `file:`, whose `file:///abs` is `file:/abs`. */
  readonly hasAuthority: boolean
  readonly hosts: readonly HostAddress[]
  /** As written, percent-decoded: `./data`, `/var/lib/app`; empty when there is none. */
  readonly path: string
  readonly username?: string
  readonly password?: string
  /** In the order of the text. No name comes twice. */
  readonly options: ReadonlyMap<string, string>
}

/** A server. An IPv6 address stands without its brackets. */
export interface HostAddress {
  readonly host: string
  /** 1 to 65535; absent: the driver's default. */
  readonly port?: number
}

/**
 * Takes a connection string apart.
 * @throws InvalidError that names the part, and what is allowed there.
 */
export function parseConnectionString(text: string): ConnectionString {
  const [scheme, rest] = splitScheme(checkText(text))
  const [body, optionText] = splitOptions(rest)
  const local = scheme === "file" || !body.startsWith("//")
  const authority = local ? "" : (body.slice(2).split("/", 1)[0] as string)
  if (!local) refuseStray(rest.slice(2 + authority.length), scheme)
  const options = optionText === undefined ? new Map<string, string>() : parseOptions(optionText, scheme)
  if (local) return { scheme, hasAuthority: false, hosts: [], path: parseLocalPath(body, scheme), options }
  return {
    scheme,
    hasAuthority: true,
    ...parseUser(authority, scheme),
    hosts: parseHosts(authority, scheme),
    path: parsePath(body.slice(2 + authority.length), scheme),
    options,
  }
}

function checkText(text: string): string {
  if (typeof text !== "string") throw new InvalidError(`a connection string is a text, not ${typeof text}`)
  if (text === "")
    throw new InvalidError('the connection string is empty: write for example "file:./data" or "memory:"')
  if (text.trim() !== text) throw new InvalidError("the connection string begins or ends with white space")
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
  if (/[\u0000-\u001f\u007f]/.test(text)) throw new InvalidError("the connection string contains a control character")
  if (!text.isWellFormed()) throw new InvalidError("the connection string is not well-formed Unicode")
  if (text.includes("#")) throw new InvalidError('the connection string contains "#": write it as %23')
  return text
}

function splitScheme(text: string): readonly [scheme: string, rest: string] {
  const match = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(text)
  if (match !== null) return [(match[1] as string).toLowerCase(), text.slice(match[0].length)]
  const shown = text.includes("@") ? "the connection string" : JSON.stringify(text)
  throw new InvalidError(`${shown} has no scheme: write for example "file:./data" for a directory, or "memory:"`)
}

function splitOptions(rest: string): readonly [body: string, options: string | undefined] {
  const question = rest.indexOf("?")
  return question === -1 ? [rest, undefined] : [rest.slice(0, question), rest.slice(question + 1)]
}

/** A raw `@` behind the hosts is mostly a password with an unescaped `/` or `?`, and the hosts then hold a piece of it. */
function refuseStray(tail: string, scheme: string): void {
  if (!tail.includes("@")) return
  throw new InvalidError(
    `the ${scheme}: connection string has "@" behind its hosts: write "/" and "?" in a user or password as %2F and %3F, and "@" anywhere else as %40`,
  )
}

function parseUser(authority: string, scheme: string): { username?: string; password?: string } {
  const at = authority.lastIndexOf("@")
  if (at === -1) return {}
  const user = authority.slice(0, at)
  const colon = user.indexOf(":")
  const username = decode(colon === -1 ? user : user.slice(0, colon), `the user of the ${scheme}: connection string`)
  if (username === "") {
    throw new InvalidError(`the ${scheme}: connection string has "@" without a user before it`)
  }
  if (colon === -1) return { username }
  return { username, password: decode(user.slice(colon + 1), `the password of the ${scheme}: connection string`) }
}

function parseHosts(authority: string, scheme: string): HostAddress[] {
  const at = authority.lastIndexOf("@")
  const text = authority.slice(at + 1)
  if (text === "") throw new InvalidError(`the ${scheme}: connection string names no host: write ${scheme}://host:port`)
  // Behind a user, a broken host may be the end of a password that holds "@".
  const show = (host: string): string => (at === -1 ? `host "${host}"` : "a host")
  return text.split(",").map((entry) => parseHost(entry, scheme, show))
}

function parseHost(entry: string, scheme: string, show: (host: string) => string): HostAddress {
  const of = `of the ${scheme}: connection string`
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/.exec(entry)
  if (bracketed !== null) {
    const host = decode(bracketed[1] as string, `an address ${of}`)
    if (!isIPv6(host)) throw new InvalidError(`${show(`[${host}]`)} ${of} is not an IPv6 address`)
    return withPort(host, bracketed[2], `${show(`[${host}]`)} ${of}`)
  }
  const colon = entry.indexOf(":")
  if (colon !== entry.lastIndexOf(":")) {
    throw new InvalidError(`a host ${of} has more than one colon: write an IPv6 address in brackets, as [::1]:9092`)
  }
  const host = colon === -1 ? entry : entry.slice(0, colon)
  if (!/^[\p{L}\p{N}._-]+$/u.test(host)) {
    throw new InvalidError(
      `${show(host)} ${of} is not a host name: it may have letters, digits, ".", "-" and "_", and hosts are separated by commas`,
    )
  }
  return withPort(host, colon === -1 ? undefined : entry.slice(colon + 1), `${show(host)} ${of}`)
}

/** Text that is no port is not shown: where "@host" was forgotten, it is a password. */
function withPort(host: string, text: string | undefined, where: string): HostAddress {
  if (text === undefined) return { host }
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (port >= 1 && port <= 65_535) return { host, port }
  throw new InvalidError(`the port of ${where} is not a whole number from 1 to 65535`)
}

function parseLocalPath(body: string, scheme: string): string {
  if (!body.startsWith("//")) return parsePath(body, scheme)
  const path = /^\/\/(?:localhost)?(\/.*)$/i.exec(body)?.[1]
  if (path !== undefined) return parsePath(path, scheme)
  throw new InvalidError(
    "a file: connection string names a directory of this machine: write file:./data for one beside the program, file:/data or file:///data for an absolute one",
  )
}

function parsePath(text: string, scheme: string): string {
  const path = decode(text, `the path of the ${scheme}: connection string`)
  if (path.includes("\0")) throw new InvalidError(`the path of the ${scheme}: connection string contains a zero byte`)
  return path
}

function parseOptions(text: string, scheme: string): Map<string, string> {
  const options = new Map<string, string>()
  for (const pair of text.split("&")) {
    const [, name, value] = /^([A-Za-z0-9_.-]+)=(.*)$/.exec(pair) ?? []
    if (name === undefined || value === undefined) {
      throw new InvalidError(
        `an option of the ${scheme}: connection string is not name=value: options follow one "?", are separated by "&", and a name has letters, digits, ".", "-" and "_"`,
      )
    }
    if (options.has(name)) throw new InvalidError(`option "${name}" is given twice`, { context: { option: name } })
    options.set(name, decode(value, `option "${name}"`))
  }
  return options
}

/** `+` stands for itself. What the text was is not shown: it may be a password. */
function decode(text: string, what: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new InvalidError(`${what} has a percent sign that does not begin an escape of UTF-8: write "%" itself as %25`)
  }
}
