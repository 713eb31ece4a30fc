/** What the typed suite reads and writes: flights as a program would keep them. */
import { seededRandom } from "@millrace/runtime"

export interface Flight {
  readonly id: number
  readonly origin: string
  readonly destination: string
  readonly departure: string
  readonly delay: number
  readonly distance: number
  readonly cancelled: boolean
}

/** Different values, used again and again. */
export const flights: readonly Flight[] = makeFlights(1000)

/** Checks a decoded value, as a program does that trusts nobody. @throws Error for anything but a flight */
export function decodeFlight(value: unknown): Flight {
  const flight = value as Flight
  if (typeof flight?.id !== "number" || typeof flight.origin !== "string" || typeof flight.delay !== "number") {
    throw new Error("this is no flight")
  }
  return flight
}

/** The flights in a codec's form, as often as needed. */
export function encoded(encode: (flight: Flight) => Uint8Array): readonly Uint8Array[] {
  return flights.map(encode)
}

function makeFlights(count: number): Flight[] {
  const random = seededRandom(20_261_130)
  const airport = (): string => String.fromCharCode(...Array.from({ length: 3 }, () => 65 + (random.uint32() % 26)))
  return Array.from({ length: count }, (_, id) => ({
    id,
    origin: airport(),
    destination: airport(),
    departure: `2026-11-${10 + (random.uint32() % 20)}T0${random.uint32() % 10}:${10 + (random.uint32() % 50)}:00Z`,
    delay: (random.uint32() % 240) - 60,
    distance: 100 + (random.uint32() % 3000),
    cancelled: random.uint32() % 50 === 0,
  }))
}
