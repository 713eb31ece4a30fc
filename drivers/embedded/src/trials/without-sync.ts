/** The check of the check: a program whose stores never sync. */
import { DatabaseSync } from "node:sqlite"

const withoutSync = (sql: string): string => sql.replace(/synchronous\s*=\s*\w+/gi, "synchronous = OFF")

/** Takes the syncs out of every database that this thread opens from here on. */
export function takeSyncsOut(): void {
  const { exec, prepare } = DatabaseSync.prototype
  DatabaseSync.prototype.exec = function (sql) {
    return exec.call(this, withoutSync(sql))
  }
  DatabaseSync.prototype.prepare = function (sql, ...rest) {
    return prepare.call(this, withoutSync(sql), ...rest)
  }
}
