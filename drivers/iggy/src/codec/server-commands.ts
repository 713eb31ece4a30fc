/** Commands on the session and the server itself (iggy-wire.md: Sessions, Login, Leader). */

import { type Codec, list8, list32, listToEnd, nothing, orNothing, rest, struct, u8, u32 } from "../wire/codec.ts"
import { logout, nonReplicated, register } from "../wire/operation.ts"
import type { Command } from "./command.ts"
import {
  type BindSession,
  bindSession as bindSessionRequest,
  type LoggedIn,
  loggedIn,
  type PasswordLogin,
  passwordLogin,
  type TokenLogin,
  tokenLogin,
} from "./login-structures.ts"
import {
  type Client,
  type ClientDetails,
  type Cluster,
  client,
  clientDetails,
  cluster,
  type OptionDescription,
  optionDescription,
  type Stats,
  stats,
} from "./server-structures.ts"

export interface SnapshotRequest {
  /** As the server numbers its archive formats. */
  readonly compression: number
  readonly parts: readonly number[]
}

const snapshotRequest: Codec<SnapshotRequest> = struct<SnapshotRequest>({ compression: u8, parts: list8(u8, 1) })
const optionScope = struct<{ readonly scope: number }>({ scope: u8 })
const clientRef = struct<{ readonly clientId: number }>({ clientId: u32 })

/** The only command that is served before a login. */
export const ping: Command<undefined, undefined> = {
  name: "ping",
  code: 1,
  operation: nonReplicated,
  request: nothing,
  reply: nothing,
}
export const getStats: Command<undefined, Stats> = {
  name: "get_stats",
  code: 10,
  operation: nonReplicated,
  request: nothing,
  reply: stats,
}
/** Answers a ZIP archive. */
export const getSnapshot: Command<SnapshotRequest, Uint8Array> = {
  name: "get_snapshot",
  code: 11,
  operation: nonReplicated,
  request: snapshotRequest,
  reply: rest,
}
export const getClusterMetadata: Command<undefined, Cluster> = {
  name: "get_cluster_metadata",
  code: 12,
  operation: nonReplicated,
  request: nothing,
  reply: cluster,
}
/** Scope 1: topics, 2: streams, 3: users. */
export const describeOptions: Command<{ readonly scope: number }, readonly OptionDescription[]> = {
  name: "describe_options",
  code: 13,
  operation: nonReplicated,
  request: optionScope,
  reply: list32(optionDescription, 11),
}
export const getMe: Command<undefined, ClientDetails> = {
  name: "get_me",
  code: 20,
  operation: nonReplicated,
  request: nothing,
  reply: clientDetails,
}
export const getClient: Command<{ readonly clientId: number }, ClientDetails | undefined> = {
  name: "get_client",
  code: 21,
  operation: nonReplicated,
  request: clientRef,
  reply: orNothing(clientDetails),
}
export const getClients: Command<undefined, readonly Client[]> = {
  name: "get_clients",
  code: 22,
  operation: nonReplicated,
  request: nothing,
  reply: listToEnd(client),
}
/** Ends the session; the connection stays. */
export const logoutUser: Command<undefined, undefined> = {
  name: "logout_user",
  code: 39,
  operation: logout,
  request: nothing,
  reply: nothing,
}
export const loginRegister: Command<PasswordLogin, LoggedIn> = {
  name: "login_register",
  code: 40,
  operation: register,
  request: passwordLogin,
  reply: loggedIn,
}
export const loginRegisterWithToken: Command<TokenLogin, LoggedIn> = {
  name: "login_register_with_pat",
  code: 45,
  operation: register,
  request: tokenLogin,
  reply: loggedIn,
}
/** Attaches a further connection to a session, or goes on with one after a reconnect. */
export const bindSession: Command<BindSession, LoggedIn> = {
  name: "bind_session",
  code: 15,
  operation: nonReplicated,
  request: bindSessionRequest,
  reply: loggedIn,
  only: "0.12",
}
