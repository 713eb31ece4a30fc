/** The options of a connection string: texts become values by the driver's table. */
import type { ConnectTarget, OptionKind } from "@millrace/contract"
import { InvalidError } from "@millrace/contract"

/** The longest duration that an option may give, in ms: what a timer of Node can wait (about 24.8 days). */
const longestDurationMs = 2_147_483_647

const durationUnitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

const sizeUnitsBytes: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  KB: 1_000,
  MB: 1_000_000,
  GB: 1_000_000_000,
  TB: 1_000_000_000_000,
  KiB: 1_024,
  MiB: 1_048_576,
  GiB: 1_073_741_824,
  TiB: 1_099_511_627_776,
}

const readers: Readonly<Record<OptionKind, (text: string) => number | boolean | string | undefined>> = {
  duration: readDuration,
  size: readSize,
  count: readCount,
  flag: readFlag,
  text: (text) => text,
}

const allowed: Readonly<Record<OptionKind, string>> = {
  duration: `a whole number with a unit, such as 250ms, 5s, 1m, 1h or 1d, or 0; at most ${longestDurationMs}ms`,
  size: "a whole number of bytes, with or without a unit: 512, 64KB (64,000), 64KiB (65,536), 1MiB, 2GiB",
  count: "a whole number from 0",
  flag: "true or false",
  text: "any text",
}

/**
 * The values of a connection string's options.
 * @throws InvalidError for an option that the driver does not know (the message lists those it does), and for a value that is not of
 *   the option's kind.
 */
export function readConnectionOptions(
  texts: ReadonlyMap<string, string>,
  scheme: string,
  known: Readonly<Record<string, OptionKind>>,
): ConnectTarget["options"] {
  const values: Record<string, number | boolean | string> = {}
  for (const [name, text] of texts) {
    if (!Object.hasOwn(known, name)) throw unknownOption(name, scheme, Object.keys(known))
    const kind = known[name] as OptionKind
    const value = readers[kind](text)
    if (value === undefined) {
      throw new InvalidError(
        `option "${name}" of the ${scheme}: connection string is ${JSON.stringify(text)}: it must be ${allowed[kind]}`,
        { context: { option: name } },
      )
    }
    values[name] = value
  }
  return values
}

function unknownOption(name: string, scheme: string, known: readonly string[]): InvalidError {
  const list = known.length === 0 ? "takes no options" : `knows ${known.join(", ")}`
  return new InvalidError(`unknown option "${name}": a ${scheme}: connection string ${list}`, {
    context: { option: name },
  })
}

function readDuration(text: string): number | undefined {
  if (text === "0") return 0
  const match = /^(\d{1,15})([a-z]+)$/.exec(text)
  const unit = match === null ? undefined : unitOf(durationUnitsMs, match[2] as string)
  if (match === null || unit === undefined) return undefined
  const ms = Number(match[1]) * unit
  return ms <= longestDurationMs ? ms : undefined
}

function readSize(text: string): number | undefined {
  const match = /^(\d{1,16})([A-Za-z]*)$/.exec(text)
  const unit = match === null ? undefined : unitOf(sizeUnitsBytes, match[2] as string)
  if (match === null || unit === undefined) return undefined
  const bytes = Number(match[1]) * unit
  return Number.isSafeInteger(bytes) ? bytes : undefined
}

function readCount(text: string): number | undefined {
  const count = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  return Number.isSafeInteger(count) ? count : undefined
}

function readFlag(text: string): boolean | undefined {
  return text === "true" ? true : text === "false" ? false : undefined
}

function unitOf(units: Readonly<Record<string, number>>, name: string): number | undefined {
  return Object.hasOwn(units, name) ? units[name] : undefined
}
