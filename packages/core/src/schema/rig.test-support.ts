import { systemClock } from "@millrace/runtime"
import { MemoryState } from "./memory-state.test-support.ts"
import { StateRegistry } from "./state-registry.ts"

/** A registry over a state that others may share. Requests are not tried again. */
export function registryOver(state: MemoryState = new MemoryState()): StateRegistry {
  const manifest = { backend: "memory", state: { supported: true } }
  return new StateRegistry({
    session: { state, manifest } as never,
    clock: systemClock,
    publish: { timeoutMs: 10_000, retries: 0, retryBackoffMs: 1 },
  })
}

/** An Avro record as text. */
export function avroRecord(name: string, fields: readonly object[]): string {
  return JSON.stringify({ type: "record", name, fields })
}
