/** Logging in (iggy-wire.md: Login, Wire 0.12). */
import { byVersion, type Codec, name, secret, struct, text32, u32, u64, u128 } from "../wire/codec.ts"

export interface ClientVersion {
  /** Packed (see `packedVersion`). */
  readonly protocolVersion: number
  readonly sdkName: string
  readonly sdkVersion: string
}

interface LoginStart extends ClientVersion {
  /** `bindSecretBytes` random bytes that a session keeps, on wire 0.12; not sent on 0.11. */
  readonly bindSecret: Uint8Array
  /** Empty: nothing is known of its content. */
  readonly context: string
}

/** Length of a session's secret on wire 0.12. */
export const bindSecretBytes = 32

const secretBytes: Codec<Uint8Array> = {
  write: (writer, value) => writer.raw(value),
  read: (reader) => reader.raw(bindSecretBytes),
}
const secretOfNewerWire: Codec<Uint8Array> = byVersion<Uint8Array>({
  "0.11": { write: () => undefined, read: () => new Uint8Array(0) },
  "0.12": secretBytes,
})

export interface PasswordLogin extends LoginStart {
  readonly username: string
  readonly password: string
}

export const passwordLogin: Codec<PasswordLogin> = struct<PasswordLogin>({
  protocolVersion: u32,
  sdkName: name,
  sdkVersion: name,
  bindSecret: secretOfNewerWire,
  username: name,
  password: secret,
  context: text32,
})

export interface TokenLogin extends LoginStart {
  readonly token: string
}

export const tokenLogin: Codec<TokenLogin> = struct<TokenLogin>({
  protocolVersion: u32,
  sdkName: name,
  sdkVersion: name,
  bindSecret: secretOfNewerWire,
  token: secret,
  context: text32,
})

export interface BindSession extends ClientVersion {
  readonly clientId: bigint
  /** 0 asks for the session after the reply to a login was lost. */
  readonly session: bigint
  readonly metadataWatermark: bigint
  readonly bindSecret: Uint8Array
}

export const bindSession: Codec<BindSession> = struct<BindSession>({
  protocolVersion: u32,
  sdkName: name,
  sdkVersion: name,
  clientId: u128,
  session: u64,
  metadataWatermark: u64,
  bindSecret: secretBytes,
})

export interface LoggedIn {
  /** The root user is 0. */
  readonly userId: number
  readonly session: bigint
  /** Packed. */
  readonly protocolVersion: number
  readonly serverVersion: string
}

export const loggedIn: Codec<LoggedIn> = struct<LoggedIn>({
  userId: u32,
  session: u64,
  protocolVersion: u32,
  serverVersion: name,
})
