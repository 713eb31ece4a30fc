/** Loaded before a program (`--import`): takes the syncs out of every store that it opens, in all of its threads. */
import { DatabaseSync } from "node:sqlite"

const withoutSync = (sql: string): string => sql.replace(/synchronous\s*=\s*\w+/gi, "synchronous = OFF")

const { exec, prepare } = DatabaseSync.prototype

DatabaseSync.prototype.exec = function (sql) {
  return exec.call(this, withoutSync(sql))
}

DatabaseSync.prototype.prepare = function (sql, ...rest) {
  return prepare.call(this, withoutSync(sql), ...rest)
}
