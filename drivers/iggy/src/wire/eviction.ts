/** Why a server ended a session (iggy-wire.md: Evictions). */
import { AuthenticationError, type MillraceError, UnsupportedError } from "@millrace/contract"
import { serverError } from "../codec/server-error.ts"
import type { EvictionHeader } from "./header.ts"
import { formatVersion } from "./version.ts"

/** Reasons that speak of a login. */
export const evictionReasons: {
  readonly invalidCredentials: 9
  readonly invalidToken: 10
  readonly userInactive: 11
  readonly incompatibleProtocol: 14
} = { invalidCredentials: 9, invalidToken: 10, userInactive: 11, incompatibleProtocol: 14 }

const unauthenticated = 40
const codes: ReadonlyMap<number, number> = new Map([
  [0, 3],
  [2, 3],
  [3, 3],
  [4, 3],
  [5, 3],
  [6, 3],
  [9, 42],
  [10, 53],
  [13, 30],
  [15, 4],
])

/** The error for an eviction; one whose reason is unknown says that there is no session. */
export function evictionError(eviction: EvictionHeader, command: string): MillraceError {
  const { reason, oldestVersion, newestVersion } = eviction
  if (reason === evictionReasons.incompatibleProtocol && oldestVersion > 0 && newestVersion >= oldestVersion) {
    return new UnsupportedError(
      `the Apache Iggy server speaks protocol ${formatVersion(oldestVersion)} to ${formatVersion(newestVersion)}, which Millrace does not: it speaks 0.11 and 0.12.2`,
      { context: { code: 14003, command, oldestVersion, newestVersion } },
    )
  }
  if (reason === evictionReasons.userInactive) {
    return new AuthenticationError("Apache Iggy refused the login: the user is inactive", {
      context: { code: 47, command },
    })
  }
  return serverError(codes.get(reason) ?? unauthenticated, command)
}
