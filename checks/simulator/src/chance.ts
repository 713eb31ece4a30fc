import { type Random, seededRandom } from "@millrace/runtime"

/** Choices from one seed: the same seed makes the same choices in the same order. */
export class Chance {
  /** The stream of numbers underneath, for what takes a `Random`. */
  readonly random: Random

  /** @param stream Which of the seed's independent streams: one use must not shift the numbers of another. Default 0. */
  constructor(seed: number, stream: number = 0) {
    this.random = seededRandom((Math.imul(seed, 0x9e37_79b1) ^ Math.imul(stream + 1, 0x85eb_ca6b)) >>> 0)
  }

  /** 0 to `bound` − 1. */
  below(bound: number): number {
    return this.random.uint32() % bound
  }

  /** `from` to `to`, both possible. */
  between(from: number, to: number): number {
    return from + this.below(to - from + 1)
  }

  /** True with this probability, 0 to 1. */
  happens(probability: number): boolean {
    return this.random.uint32() < probability * 2 ** 32
  }

  /** One of the list, which is not empty. */
  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T
  }

  /** One of the values, each as often as its weight says. */
  weighted<T>(choices: readonly (readonly [weight: number, value: T])[]): T {
    let total = 0
    for (const [weight] of choices) total += weight
    let left = (this.random.uint32() / 2 ** 32) * total
    for (const [weight, value] of choices) {
      left -= weight
      if (left < 0) return value
    }
    return (choices.at(-1) as readonly [number, T])[1]
  }
}
