/** The input: 20,000 flights of 2001 within the United States, from the package vega-datasets. */
import { readFile } from "node:fs/promises"

/** One flight, as the file and the topic have it. */
export interface Flight {
  /** Local time of the planned departure: `2001/01/01 00:47`. */
  readonly date: string
  /** Minutes; negative when it left early. Whole numbers, so that sums are exact in any order. */
  readonly delay: number
  readonly distance: number
  /** Airport codes. */
  readonly origin: string
  readonly destination: string
}

/** Checks one value that came from outside. @throws TypeError that names the field */
export function decodeFlight(value: unknown): Flight {
  const { date, delay, distance, origin, destination } = Object(value) as Record<string, unknown>
  if (typeof date !== "string") throw new TypeError(`"date" of a flight is ${typeof date}, not text`)
  if (!isWhole(delay)) throw new TypeError(`"delay" of a flight is ${String(delay)}, not a whole number of minutes`)
  if (!isWhole(distance)) throw new TypeError(`"distance" of a flight is ${String(distance)}, not a whole number`)
  if (typeof origin !== "string" || origin === "") throw new TypeError(`"origin" of a flight is not an airport code`)
  if (typeof destination !== "string" || destination === "") {
    throw new TypeError(`"destination" of a flight is not an airport code`)
  }
  return { date, delay, distance, origin, destination }
}

/** All flights, in the order of the file. */
export async function readFlights(): Promise<Flight[]> {
  // The package's exports hide its data, so the way to it goes by its entry.
  const file = new URL("../data/flights-20k.json", import.meta.resolve("vega-datasets"))
  return (JSON.parse(await readFile(file, "utf8")) as unknown[]).map(decodeFlight)
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value)
}
