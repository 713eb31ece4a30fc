/** Users, their permissions and their tokens (iggy-wire.md: Users and tokens). */
import {
  byVersion,
  type Codec,
  flag,
  flagged,
  join,
  listToEnd,
  name,
  secret,
  sized32,
  struct,
  u32,
  u64,
  word,
} from "../wire/codec.ts"
import { type Identifier, identifier } from "./identifier.ts"
import { type Options, options32, optionsToEnd } from "./options.ts"

export interface GlobalPermissions {
  readonly manageServers: boolean
  readonly readServers: boolean
  readonly manageUsers: boolean
  readonly readUsers: boolean
  readonly manageStreams: boolean
  readonly readStreams: boolean
  readonly manageTopics: boolean
  readonly readTopics: boolean
  readonly pollMessages: boolean
  readonly sendMessages: boolean
}

export interface TopicPermissions {
  readonly topicId: number
  readonly manageTopic: boolean
  readonly readTopic: boolean
  readonly pollMessages: boolean
  readonly sendMessages: boolean
}

export interface StreamPermissions {
  readonly streamId: number
  readonly manageStream: boolean
  readonly readStream: boolean
  readonly manageTopics: boolean
  readonly readTopics: boolean
  readonly pollMessages: boolean
  readonly sendMessages: boolean
  readonly topics: readonly TopicPermissions[]
}

/** Managing implies reading; rights on a stream imply those on its topics. */
export interface Permissions {
  readonly global: GlobalPermissions
  readonly streams: readonly StreamPermissions[]
}

/** A list that says after each entry whether another one follows. */
function chain<T>(item: Codec<T>): Codec<readonly T[]> {
  return {
    write(writer, items, version) {
      writer.u8(items.length > 0 ? 1 : 0)
      for (let i = 0; i < items.length; i++) {
        item.write(writer, items[i] as T, version)
        writer.u8(i < items.length - 1 ? 1 : 0)
      }
    },
    read(reader, version) {
      const items: T[] = []
      while (flag.read(reader, version)) items.push(item.read(reader, version))
      return items
    },
  }
}

const permissions: Codec<Permissions> = struct<Permissions>({
  global: struct<GlobalPermissions>({
    manageServers: flag,
    readServers: flag,
    manageUsers: flag,
    readUsers: flag,
    manageStreams: flag,
    readStreams: flag,
    manageTopics: flag,
    readTopics: flag,
    pollMessages: flag,
    sendMessages: flag,
  }),
  streams: chain(
    struct<StreamPermissions>({
      streamId: u32,
      manageStream: flag,
      readStream: flag,
      manageTopics: flag,
      readTopics: flag,
      pollMessages: flag,
      sendMessages: flag,
      topics: chain(
        struct<TopicPermissions>({
          topicId: u32,
          manageTopic: flag,
          readTopic: flag,
          pollMessages: flag,
          sendMessages: flag,
        }),
      ),
    }),
  ),
})

const givenPermissions = flagged(sized32(permissions))

export type UserStatus = "active" | "inactive"
const userStatus: Codec<UserStatus> = word({ active: 1, inactive: 2 }, "the status of a user")

export interface User {
  readonly id: number
  readonly createdMicros: bigint
  readonly status: UserStatus
  readonly username: string
  readonly options: Options
  /** Empty on wire 0.11. */
  readonly derivedOptions: Options
}

export interface UserDetails extends User {
  readonly permissions: Permissions | undefined
}

export const user: Codec<User> = struct<User>({
  id: u32,
  createdMicros: u64,
  status: userStatus,
  username: name,
  options: options32,
  derivedOptions: byVersion<Options>({ "0.11": { write: () => undefined, read: () => [] }, "0.12": options32 }),
})

/** Unlike requests, replies write "no permissions" as four zero bytes. */
const permissionsInReply: Codec<Permissions | undefined> = {
  write(writer, value, version) {
    if (value === undefined) writer.u32(0)
    else givenPermissions.write(writer, value, version)
  },
  read(reader, version) {
    const value = givenPermissions.read(reader, version)
    if (value === undefined)
      for (const byte of reader.raw(3)) if (byte !== 0) reader.fail("has bytes in place of no permissions")
    return value
  },
}

export const userDetails: Codec<UserDetails> = join(
  user,
  struct<{ readonly permissions: Permissions | undefined }>({ permissions: permissionsInReply }),
)

export interface CreateUser {
  readonly username: string
  readonly password: string
  readonly status: UserStatus
  readonly permissions: Permissions | undefined
  readonly options: Options
}

export const createUser: Codec<CreateUser> = struct<CreateUser>({
  username: name,
  password: secret,
  status: userStatus,
  permissions: givenPermissions,
  options: optionsToEnd,
})

export interface UpdateUser {
  readonly user: Identifier
  readonly username: string | undefined
  readonly status: UserStatus | undefined
  readonly options: Options
}

export const updateUser: Codec<UpdateUser> = struct<UpdateUser>({
  user: identifier,
  username: flagged(name),
  status: flagged(userStatus),
  options: optionsToEnd,
})

export interface UpdatePermissions {
  readonly user: Identifier
  /** `undefined` takes all away. */
  readonly permissions: Permissions | undefined
}

export const updatePermissions: Codec<UpdatePermissions> = struct<UpdatePermissions>({
  user: identifier,
  permissions: givenPermissions,
})

export interface ChangePassword {
  readonly user: Identifier
  readonly current: string
  readonly next: string
}

export const changePassword: Codec<ChangePassword> = struct<ChangePassword>({
  user: identifier,
  current: secret,
  next: secret,
})

export interface AccessToken {
  readonly name: string
  /** Microseconds since 1970; 0: never. */
  readonly expiresMicros: bigint
}

export const accessTokens: Codec<readonly AccessToken[]> = listToEnd(struct<AccessToken>({ name, expiresMicros: u64 }))

export interface CreateAccessToken {
  readonly name: string
  /** From now; 0 or 2^64 − 1: never. */
  readonly expiryMicros: bigint
}

export const createAccessToken: Codec<CreateAccessToken> = struct<CreateAccessToken>({ name, expiryMicros: u64 })
