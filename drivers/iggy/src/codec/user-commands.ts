/** Commands on users and their tokens (iggy-wire.md: Users and tokens). */

import { listToEnd, name, nothing, orNothing, struct } from "../wire/codec.ts"
import { nonReplicated } from "../wire/operation.ts"
import type { Command } from "./command.ts"
import { type UserRef, userRef } from "./identifier.ts"
import {
  type AccessToken,
  accessTokens,
  type ChangePassword,
  type CreateAccessToken,
  type CreateUser,
  changePassword as changePasswordRequest,
  createAccessToken as createAccessTokenRequest,
  createUser as createUserRequest,
  type UpdatePermissions,
  type UpdateUser,
  type User,
  type UserDetails,
  updatePermissions as updatePermissionsRequest,
  updateUser as updateUserRequest,
  user,
  userDetails,
} from "./user-structures.ts"

const nameOnly = struct<{ readonly name: string }>({ name })
const newToken = struct<{ readonly token: string }>({ token: name })

/** `undefined`: the user does not exist. */
export const getUser: Command<UserRef, UserDetails | undefined> = {
  name: "get_user",
  code: 31,
  operation: nonReplicated,
  request: userRef,
  reply: orNothing(userDetails),
}
export const getUsers: Command<undefined, readonly User[]> = {
  name: "get_users",
  code: 32,
  operation: nonReplicated,
  request: nothing,
  reply: listToEnd(user),
}
export const createUser: Command<CreateUser, UserDetails> = {
  name: "create_user",
  code: 33,
  operation: 141,
  request: createUserRequest,
  reply: userDetails,
}
export const deleteUser: Command<UserRef, undefined> = {
  name: "delete_user",
  code: 34,
  operation: 143,
  request: userRef,
  reply: nothing,
}
export const updateUser: Command<UpdateUser, undefined> = {
  name: "update_user",
  code: 35,
  operation: 142,
  request: updateUserRequest,
  reply: nothing,
  only: "0.11",
}
export const updatePermissions: Command<UpdatePermissions, undefined> = {
  name: "update_permissions",
  code: 36,
  operation: 145,
  request: updatePermissionsRequest,
  reply: nothing,
}
export const changePassword: Command<ChangePassword, undefined> = {
  name: "change_password",
  code: 37,
  operation: 144,
  request: changePasswordRequest,
  reply: nothing,
}
export const getAccessTokens: Command<undefined, readonly AccessToken[]> = {
  name: "get_personal_access_tokens",
  code: 41,
  operation: nonReplicated,
  request: nothing,
  reply: accessTokens,
}
/** The only time that the token itself is shown. */
export const createAccessToken: Command<CreateAccessToken, { readonly token: string }> = {
  name: "create_personal_access_token",
  code: 42,
  operation: 146,
  request: createAccessTokenRequest,
  reply: newToken,
}
export const deleteAccessToken: Command<{ readonly name: string }, undefined> = {
  name: "delete_personal_access_token",
  code: 43,
  operation: 147,
  request: nameOnly,
  reply: nothing,
}
