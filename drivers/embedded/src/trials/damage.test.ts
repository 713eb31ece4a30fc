/**
 * A damaged store gives a typed error or the right answer: never a dead process, a record that nobody wrote, or a gap that nobody is told
 * of. The end of a write-ahead log that is cut short or altered is, as after a crash, a log that ends earlier: at the end of a batch.
 */
import assert from "node:assert/strict"
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import test from "node:test"
import { MillraceError } from "@millrace/contract"
import { type Random, seededRandom } from "@millrace/runtime"
import { checkSound } from "./ledger.ts"
import { long } from "./needs.ts"
import { cutAt, type Damage, damagesOfPage, liveFramesOf, pagesOf, zeroFrom } from "./page-damage.ts"
import { openThreadSession } from "./thread-session.ts"
import { startChild } from "./trial-child.ts"
import { trialDirectory } from "./trial-directory.ts"
import { readPartition, trialTopic, verify } from "./trial-log.ts"

const batches = 100
const batch = { writer: 1, count: 5, bytes: 1_500 }
/** Batches of this size go to a segment file. */
const largeBatches = 10
const largeBatch = { writer: 1, count: 5, bytes: 16_000 }
const records = (batches + largeBatches) * 5

interface Store {
  readonly files: ReadonlyMap<string, Uint8Array>
  readonly database: string
  readonly wal: string
  readonly pageBytes: number
}

interface Stores {
  readonly closed: Store
  readonly killed: Store
}

let made: Promise<Stores> | undefined

/** Made once: they are only copies of files. */
function stores(t: test.TestContext): Promise<Stores> {
  made ??= makeStores(t)
  return made
}

/**
 * A store as it is after a close, and as a killed process leaves it. Another process writes it: reading the files of a store in a process
 * that has it open would drop that process's locks.
 */
async function makeStores(t: test.TestContext): Promise<Stores> {
  const directory = trialDirectory(t, { inMemory: true })
  const child = startChild(t, "opener")
  await child.ask("open", directory)
  await child.ask("ensure")
  let first = 0
  for (const [count, size] of [
    [batches, batch],
    [largeBatches, largeBatch],
  ] as const) {
    for (let index = 0; index < count; index += 1, first += size.count) await child.ask("append", { ...size, first })
  }
  const killed = takeFiles(directory)
  await child.ask("close")
  return { closed: takeFiles(directory), killed }
}

function takeFiles(directory: string): Store {
  const files = new Map<string, Uint8Array>()
  for (const name of readdirSync(directory, { recursive: true, encoding: "utf8" })) {
    const path = join(directory, name)
    if (!name.endsWith("-shm") && statSync(path).isFile()) files.set(name, new Uint8Array(readFileSync(path)))
  }
  const wal = [...files.keys()].find((name) => name.endsWith("-wal"))
  const database = [...files.entries()].find(([, bytes]) => {
    return Buffer.from(bytes.subarray(0, 15)).toString() === "SQLite format 3"
  })
  assert.ok(database !== undefined)
  const pageBytes = new DataView(database[1].buffer, database[1].byteOffset).getUint16(16)
  return { files, database: database[0], wal: wal ?? `${database[0]}-wal`, pageBytes }
}

function writeFiles(directory: string, store: Store, file: string, damage: Damage): void {
  rmSync(directory, { recursive: true, force: true })
  for (const [name, bytes] of store.files) {
    const path = join(directory, name)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, name === file ? damage.damage(bytes) : bytes)
  }
}

/** What somebody who opens the store gets to see. */
interface Seen {
  /** The kind of what went wrong, at opening or at reading. */
  readonly error: string | undefined
  /** Records from offset 0 on that were handed out, each of them checked. */
  readonly records: number
  readonly verified: boolean
}

async function look(directory: string): Promise<Seen> {
  const verified = await verify(directory).then(
    ({ ok }) => ok,
    (error: unknown) => {
      assert.ok(error instanceof MillraceError, `the check threw ${String(error)}`)
      return false
    },
  )
  return { ...(await read(directory)), verified }
}

async function read(directory: string): Promise<Omit<Seen, "verified">> {
  try {
    const session = openThreadSession(directory)
    try {
      const reading = await readPartition(session, trialTopic)
      for (const [index, record] of checkSound(reading).entries()) {
        assert.ok(record.writer === 1 && record.sequence === index, `offset ${index} holds record ${record.sequence}`)
      }
      return { error: reading.error?.kind, records: reading.records.length }
    } finally {
      await session.close()
    }
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    return { error: error.kind, records: 0 }
  }
}

/** @param whole whether all records must be there unless an error says otherwise; else complete batches up to a point will do. */
async function checkDamage(
  t: test.TestContext,
  store: Store,
  file: string,
  damages: readonly Damage[],
  whole: boolean,
) {
  const directory = join(trialDirectory(t, { inMemory: true }), "damaged")
  const seen = { complete: 0, shorter: 0, errors: {} as Record<string, number> }
  for (const damage of damages) {
    writeFiles(directory, store, file, damage)
    const first = await look(directory)
    const what = `${file}: ${damage.name}: ${JSON.stringify(first)}`
    if (first.error === undefined) {
      assert.equal(first.records % batch.count, 0, `half a batch came back: ${what}`)
      assert.ok(!whole || first.records === records, `records are missing, and nobody is told: ${what}`)
      if (first.records === records) seen.complete += 1
      else seen.shorter += 1
    } else {
      // A log that ends before its topic was made holds no topic: then the store is sound.
      const endsEarly = !whole && first.error === "not-found" && first.verified
      assert.ok(endsEarly || first.error !== "not-found", `the damage looks like an empty store: ${what}`)
      assert.ok(endsEarly || !first.verified, `the check finds nothing: ${what}`)
      seen.errors[first.error] = (seen.errors[first.error] ?? 0) + 1
    }
    const { error, records: left } = first
    assert.deepEqual(await read(directory), { error, records: left }, `the second opening: ${what}`)
  }
  t.diagnostic(`${damages.length} damages: ${JSON.stringify(seen)}`)
  assert.ok(seen.complete < damages.length, "no damage touched anything that counts")
}

/** How much more is damaged in the long run. */
const more = long ? 20 : 1

/** So many of the items, drawn evenly from the whole. */
function some<V>(items: readonly V[], few: number, random: Random): V[] {
  const most = few * more
  if (items.length <= most) return [...items]
  const stretch = items.length / most
  return Array.from({ length: most }, (_, index) => {
    return items[Math.floor(index * stretch) + (random.uint32() % Math.floor(stretch))] as V
  })
}

test("damage to any page of a database file is an error or changes nothing", async (t) => {
  const { closed } = await stores(t)
  const random = seededRandom(34)
  const bytes = closed.files.get(closed.database) as Uint8Array
  const pages = pagesOf(bytes.length, closed.pageBytes)
  const damages = pages.flatMap((_, index) => damagesOfPage(pages, index, random))
  // The catalog lies in the first pages: each of them in every way, and some of the others.
  const early = 14 * (damages.length / pages.length)
  const chosen = [...damages.slice(0, early), ...some(damages.slice(early), 40, random)]
  await checkDamage(t, closed, closed.database, chosen, true)
})

test("damage to any part of a segment is an error or changes nothing", async (t) => {
  const { closed } = await stores(t)
  const random = seededRandom(37)
  const [name, bytes] = [...closed.files].find(([file]) => file.startsWith("segments")) ?? []
  assert.ok(name !== undefined && bytes !== undefined, "the large batches did not go to a segment")
  const pieces = pagesOf(bytes.length, 16_384)
  const damages = pieces.flatMap((_, index) => damagesOfPage(pieces, index, random))
  await checkDamage(t, closed, name, some(damages, 40, random), true)
})

test("damage to any page of the write-ahead log is an error, or the log ends before it", async (t) => {
  const { killed } = await stores(t)
  const random = seededRandom(35)
  const bytes = killed.files.get(killed.wal)
  assert.ok(bytes !== undefined && bytes.length > 0, "a killed process leaves no write-ahead log")
  const frames = liveFramesOf(bytes, killed.pageBytes)
  const damages = frames.flatMap((_, index) => damagesOfPage(frames, index, random))
  await checkDamage(t, killed, killed.wal, some(damages, 50, random), false)
})

test("a torn tail is cut off at any byte of the last batch, and never comes back as data", async (t) => {
  const { killed } = await stores(t)
  const bytes = killed.files.get(killed.wal) as Uint8Array
  const frames = liveFramesOf(bytes, killed.pageBytes)
  const start = frames.at(-2)?.[0]
  const end = frames.at(-1)?.[1]
  assert.ok(start !== undefined && end !== undefined, "a killed process leaves no write-ahead log")
  const tail = Array.from({ length: end - start }, (_, index) => start + index)
  const random = seededRandom(36)
  const sampled = some(tail, 12, random)
  await checkDamage(
    t,
    killed,
    killed.wal,
    sampled.flatMap((at) => [cutAt(at), zeroFrom(at)]),
    false,
  )
})

test("a missing segment, and a database that is gone, are errors; of the small files nothing is needed", async (t) => {
  const { closed } = await stores(t)
  const directory = join(trialDirectory(t, { inMemory: true }), "damaged")
  const untouched: Damage = { name: "nothing", damage: (bytes) => bytes }
  const without = async (name: string): Promise<Seen> => {
    writeFiles(directory, closed, name, untouched)
    rmSync(join(directory, name), { recursive: true })
    return await look(directory)
  }
  const { error, records: left, verified } = await without("segments")
  assert.deepEqual([error, left, verified], ["corruption", batches * batch.count, false])
  assert.deepEqual(await without(closed.database), { error: "corruption", records: 0, verified: false })
  for (const name of [...closed.files.keys()].filter((file) => file !== closed.database && !file.includes("/"))) {
    assert.deepEqual(await without(name), { error: undefined, records, verified: true }, name)
    writeFiles(directory, closed, name, { name: "noise", damage: () => Buffer.from("noise") })
    assert.deepEqual(await look(directory), { error: undefined, records, verified: true }, name)
  }
})
