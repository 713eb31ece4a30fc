/**
 * The wait before attempt `retry` (0 for the first resend): `baseMs` doubled each time, at most `maxMs`, no jitter
 * (seed 000, "Direct producer").
 */
export function backoffMs(retry: number, baseMs: number, maxMs: number): number {
  return Math.min(maxMs, baseMs * 2 ** Math.min(retry, 16))
}
