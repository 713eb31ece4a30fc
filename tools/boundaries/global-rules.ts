/** Time and chance come in by argument: outside packages/runtime, no source may take them from the globals. */
import { isTest, roomOf } from "./rooms.ts"
import type { SourceFacts } from "./source-facts.ts"
import type { Violation } from "./violation.ts"

const takeClock = "take a Clock from @millrace/runtime and call"
const takeRandom = "take a Random from @millrace/runtime and call uint32()"

const globals: Readonly<Record<string, string>> = {
  "Date.now": `${takeClock} nowMicros()`,
  "new Date()": `${takeClock} nowMicros()`,
  "Date()": `${takeClock} nowMicros()`,
  "performance.now": `${takeClock} monotonicMs()`,
  "performance.timeOrigin": `${takeClock} nowMicros()`,
  "process.hrtime": `${takeClock} monotonicMs()`,
  "process.uptime": `${takeClock} monotonicMs()`,
  "AbortSignal.timeout": `${takeClock} setTimer()`,
  setTimeout: `${takeClock} setTimer()`,
  setInterval: `${takeClock} setTimer()`,
  setImmediate: `${takeClock} setTimer()`,
  "globalThis.setTimeout": `${takeClock} setTimer()`,
  "globalThis.setInterval": `${takeClock} setTimer()`,
  "globalThis.setImmediate": `${takeClock} setTimer()`,
  "Math.random": takeRandom,
  "crypto.randomUUID": takeRandom,
  "crypto.getRandomValues": takeRandom,
  "crypto.randomBytes": takeRandom,
  "crypto.randomInt": takeRandom,
}

const modules: Readonly<Record<string, string>> = {
  "node:timers": `${takeClock} setTimer()`,
  "node:timers/promises": `${takeClock} setTimer()`,
  "node:perf_hooks": `${takeClock} monotonicMs()`,
}

const names: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "node:crypto": Object.fromEntries(
    ["randomBytes", "randomUUID", "randomInt", "randomFill", "randomFillSync", "getRandomValues", "webcrypto"].map(
      (name) => [name, takeRandom],
    ),
  ),
  "node:process": { hrtime: `${takeClock} monotonicMs()`, uptime: `${takeClock} monotonicMs()` },
}

/** The uses of global time and chance in one file. Tests, checks, tools and examples are free. */
export function checkGlobals(source: SourceFacts): Violation[] {
  if (!roomOf(source.path)?.pure || isTest(source.path)) return []
  const violations: Violation[] = []
  const refuse = (line: number, what: string, instead: string | undefined): void => {
    if (instead === undefined) return
    violations.push({ path: source.path, line, message: `${what} is global time or chance: ${instead}` })
  }
  for (const { name, line } of source.globals) refuse(line, name, lookup(globals, name))
  for (const { specifier, line, typeOnly, names: imported } of source.imports) {
    if (typeOnly) continue
    refuse(line, `"${specifier}"`, lookup(modules, specifier))
    for (const name of imported) refuse(line, `${name} of "${specifier}"`, lookup(names[specifier] ?? {}, name))
  }
  return violations
}

function lookup(table: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
