import type { DatabaseSync, StatementSync } from "node:sqlite"
import { storageError } from "./storage-error.ts"

/** More problems than this are counted and not listed. */
const mostProblems = 1000

/** What a check has found so far, and how it asks the database. */
export class Findings {
  readonly problems: string[] = []
  problemCount = 0
  streams = 0
  topics = 0
  partitions = 0
  batches = 0
  records = 0
  bytes = 0
  /** Bytes of batches that were seen, by segment. */
  readonly segmentBytes: Map<bigint, number> = new Map()
  /** Where the last of these batches ends, by segment. */
  readonly segmentEnds: Map<bigint, number> = new Map()
  readonly #db: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()

  constructor(db: DatabaseSync) {
    this.#db = db
  }

  found(problem: string): void {
    this.problemCount++
    if (this.problems.length < mostProblems) this.problems.push(problem)
  }

  /** Runs a part of the check; what it throws is a problem, and the check goes on behind it. */
  guarded(where: string, run: () => void): void {
    try {
      run()
    } catch (error) {
      this.found(`${where}: ${storageError(error, "reading").message}`)
    }
  }

  /**
   * Every INTEGER that it reads is a bigint. Statements are kept: Node 22.15 reads freed memory when one is collected whose `iterate()` is
   * under way.
   */
  statement(sql: string): StatementSync {
    const known = this.#statements.get(sql)
    if (known !== undefined) return known
    const statement = this.#db.prepare(sql)
    statement.setReadBigInts(true)
    this.#statements.set(sql, statement)
    return statement
  }

  one(sql: string): Record<string, unknown> | undefined {
    return this.statement(sql).get()
  }

  all(sql: string): Record<string, unknown>[] {
    return this.statement(sql).all()
  }

  /** A batch that must be whole ends at `end`. */
  reaches(segment: bigint, end: number): void {
    if (end > (this.segmentEnds.get(segment) ?? 0)) this.segmentEnds.set(segment, end)
  }

  addToSegment(segment: bigint, bytes: number): void {
    this.segmentBytes.set(segment, (this.segmentBytes.get(segment) ?? 0) + bytes)
  }
}
