/**
 * Small values: versioned by one counter of the store, and gone after their time where they have one. The store's clock is the newest
 * wall clock that it has seen, so that a value that is gone does not come back when a clock is set back.
 */
import { FencedError, type StateEntry } from "@millrace/contract"
import type { Access, WriteAccess } from "./command.ts"

/** The tables, part of the store's schema since format 2. */
export const stateSchema: string = `
  -- Values by the UTF-8 of their key. expires: microseconds of the store's clock; none: never.
  CREATE TABLE small_state (
    key      BLOB    PRIMARY KEY,
    value    BLOB    NOT NULL,
    revision INTEGER NOT NULL,
    expires  INTEGER
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX small_state_expiry ON small_state (expires) WHERE expires IS NOT NULL;

  -- One row. revision: the last one that was given. clock: the newest time that a change was made at.
  CREATE TABLE state_counter (revision INTEGER NOT NULL, clock INTEGER NOT NULL) STRICT;
  INSERT INTO state_counter VALUES (0, 0);
`

/** The last revision, and the time, as one transaction sees them. */
export interface StateTime {
  readonly revision: bigint
  readonly nowMicros: bigint
}

/** One engine's sense of the store's clock: it never goes back, and goes on with the monotonic clock while the wall clock is behind. */
export class StateClock {
  #newestMicros = 0n
  #newestMs = 0

  read(access: Access): StateTime {
    const row = access.statement("SELECT revision, clock FROM state_counter").get()
    const sinceMicros = this.#newestMicros + BigInt(Math.floor((access.monotonicMs - this.#newestMs) * 1000))
    let nowMicros = row?.clock as bigint
    for (const time of [access.nowMicros, this.#newestMicros === 0n ? 0n : sinceMicros])
      if (time > nowMicros) nowMicros = time
    if (nowMicros > sinceMicros || this.#newestMicros === 0n) {
      this.#newestMicros = nowMicros
      this.#newestMs = access.monotonicMs
    }
    return { revision: row?.revision as bigint, nowMicros }
  }
}

const alive = "(expires IS NULL OR expires > ?)"

export function findValue(access: Access, key: Uint8Array, { nowMicros }: StateTime): StateEntry | undefined {
  const row = access
    .statement(`SELECT key, value, revision FROM small_state WHERE key = ? AND ${alive}`)
    .get(key, nowMicros)
  return row === undefined ? undefined : entryOf(row)
}

/** All values whose key begins with these bytes, in the order of the keys. */
export function listValues(access: Access, prefix: Uint8Array, { nowMicros }: StateTime): StateEntry[] {
  return access
    .statement(`SELECT key, value, revision FROM small_state WHERE key >= ? AND key < ? AND ${alive} ORDER BY key`)
    .all(prefix, endOf(prefix), nowMicros)
    .map(entryOf)
}

/** The keys and revisions of the same. */
export function listRevisions(access: Access, prefix: Uint8Array, { nowMicros }: StateTime): Map<string, bigint> {
  const rows = access
    .statement(`SELECT key, revision FROM small_state WHERE key >= ? AND key < ? AND ${alive} ORDER BY key`)
    .all(prefix, endOf(prefix), nowMicros)
  return new Map(rows.map((row) => [text(row.key as Uint8Array), row.revision as bigint]))
}

/** When the next of them is gone. */
export function nextExpiry(access: Access, prefix: Uint8Array, { nowMicros }: StateTime): bigint | undefined {
  const row = access
    .statement("SELECT min(expires) AS expires FROM small_state WHERE key >= ? AND key < ? AND expires > ?")
    .get(prefix, endOf(prefix), nowMicros)
  return (row?.expires as bigint | null | undefined) ?? undefined
}

/** Takes the next revision for a change, and removes what is gone by now. */
export function nextRevision(access: WriteAccess, { nowMicros }: StateTime): bigint {
  access.statement("DELETE FROM small_state WHERE expires IS NOT NULL AND expires <= ?").run(nowMicros)
  const row = access
    .statement("UPDATE state_counter SET revision = revision + 1, clock = ? RETURNING revision")
    .get(nowMicros)
  return row?.revision as bigint
}

/** @throws FencedError, which has the present revision in its context, 0n where there is no value */
export function checkRevision(key: string, present: StateEntry | undefined, ifRevision: bigint | undefined): void {
  if (ifRevision === undefined) return
  const revision = present?.revision ?? 0n
  if (revision === ifRevision) return
  const found = revision === 0n ? "there is no value" : `its revision is ${revision}`
  const wanted = ifRevision === 0n ? "no value" : `revision ${ifRevision}`
  throw new FencedError(
    `the value of ${JSON.stringify(key)} was changed meanwhile: ${wanted} was expected, and ${found}`,
    {
      context: { key, revision, ifRevision },
    },
  )
}

/** UTF-8 has no byte 255, so the last byte of a prefix can always be one more; without a prefix 255 is behind all keys. */
function endOf(prefix: Uint8Array): Uint8Array {
  if (prefix.length === 0) return new Uint8Array([255])
  const end = prefix.slice()
  end[end.length - 1] = (end[end.length - 1] as number) + 1
  return end
}

function entryOf(row: Readonly<Record<string, unknown>>): StateEntry {
  return { key: text(row.key as Uint8Array), value: row.value as Uint8Array, revision: row.revision as bigint }
}

const utf8 = new TextDecoder()

function text(key: Uint8Array): string {
  return utf8.decode(key)
}
