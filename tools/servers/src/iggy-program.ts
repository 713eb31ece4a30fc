import { onPath } from "./programs.ts"

/** The Iggy server on the PATH. No registry has it, so it is neither fetched nor built. */
export function iggyProgram(): string | undefined {
  return onPath("iggy-server")
}
