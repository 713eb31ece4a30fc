/**
 * Holds the arrows between rooms (ARCHITECTURE.md), finds import cycles, and keeps global time and chance inside packages/runtime.
 * Run in the root by `npm run check`; exit code 1 with one line a violation, each of which says what to write instead.
 */
import process from "node:process"
import { checkRepository } from "./boundaries/repository.ts"

const { files, violations } = checkRepository()
for (const { path, line, message } of violations) console.error(`${path}:${line}: ${message}`)
console.log(`boundaries: ${files} files, ${violations.length} violations`)
process.exitCode = violations.length === 0 ? 0 : 1
