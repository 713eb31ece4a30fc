import type { Manifest } from "@millrace/contract"

/**
 * How long a producer that is known by its sequences is remembered for certain, in ms: Kafka forgets one that was silent for a day
 * (`producer.id.expiration.ms`), and so does the embedded log. What Kafka has forgotten it takes for new, without a word.
 */
const rememberedMs = 12 * 3_600_000

/** How much earlier a resend has to begin, in ms, so that it arrives in time. */
const marginMs = 5_000

/** How long after its first attempt a batch is certain to be recognised, in ms; 0: never. */
export function trustedMs(
  { append }: Manifest,
  topic: { readonly sequenced: boolean; readonly deduplicationWindowMs: number },
): number {
  if (append.dedup === "sequence") return topic.sequenced ? Math.min(append.windowMs ?? rememberedMs, rememberedMs) : 0
  if (append.dedup === "none") return 0
  const windowMs = Math.min(append.windowMs ?? topic.deduplicationWindowMs, topic.deduplicationWindowMs)
  return Math.max(0, windowMs - Math.min(marginMs, windowMs / 4))
}
