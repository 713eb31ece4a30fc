/**
 * What members of a classic group tell each other inside JoinGroup and SyncGroup (protocol type "consumer"; Kafka's
 * `ConsumerProtocol`): a version in 16 bits, then the message of that version.
 */
import { MillraceError } from "@millrace/contract"
import { codecOf } from "./api.ts"
import type { Struct } from "./codec.ts"
import {
  type ConsumerProtocolAssignment,
  type ConsumerProtocolSubscription,
  consumerProtocolAssignmentSchema,
  consumerProtocolSubscriptionSchema,
} from "./messages.generated.ts"
import { Reader } from "./reader.ts"
import type { MessageSchema } from "./schema.ts"
import { Writer } from "./writer.ts"

/** What a member says of itself when it joins. `version`: 0 topics, 1 owned partitions, 2 generation, 3 rack. */
export function encodeSubscription(subscription: ConsumerProtocolSubscription, version: number): Uint8Array {
  return encode(consumerProtocolSubscriptionSchema, subscription, version)
}

/** @throws MillraceError of kind `protocol` when another member has sent something else */
export function decodeSubscription(bytes: Uint8Array): Required<ConsumerProtocolSubscription> {
  return decode(consumerProtocolSubscriptionSchema, bytes) as unknown as Required<ConsumerProtocolSubscription>
}

/** What the leader gives a member. */
export function encodeAssignment(assignment: ConsumerProtocolAssignment, version: number): Uint8Array {
  return encode(consumerProtocolAssignmentSchema, assignment, version)
}

/** @throws MillraceError of kind `protocol` when the leader has sent something else */
export function decodeAssignment(bytes: Uint8Array): Required<ConsumerProtocolAssignment> {
  return decode(consumerProtocolAssignmentSchema, bytes) as unknown as Required<ConsumerProtocolAssignment>
}

function encode(schema: MessageSchema, message: object, version: number): Uint8Array {
  const writer = new Writer()
  writer.int16(version)
  codecOf(schema, version).write(writer, message as Struct)
  return Buffer.concat(writer.chunks())
}

/** A newer version begins like the newest known, and what it has more follows behind: it is left (KIP-429). */
function decode(schema: MessageSchema, bytes: Uint8Array): Struct {
  try {
    const reader = new Reader(bytes)
    const version = reader.int16()
    const [first, last] = schema.versions
    if (version < first) throw new MillraceError("protocol", `version ${version} is not known`)
    return codecOf(schema, Math.min(version, last)).read(reader)
  } catch (cause) {
    const detail = cause instanceof Error ? cause.message : String(cause)
    throw new MillraceError("protocol", `the ${schema.name} of a group member is malformed: ${detail}`, { cause })
  }
}
