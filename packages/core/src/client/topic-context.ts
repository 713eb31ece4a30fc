import { InvalidError } from "@millrace/contract"
import type { LiveContext } from "./live-context.ts"
import { shown } from "./options.ts"

/** Looks into a topic handle; absent for anything else. */
let contextOf: (topic: unknown) => LiveContext | undefined = () => undefined

/** Called once by the class of the handles, which alone can look into them; so what works on topics need not import it. */
export function lookIntoTopicsBy(look: (topic: unknown) => LiveContext | undefined): void {
  contextOf = look
}

/** The client behind a handle, for what works on topics. @throws InvalidError for anything but a topic handle */
export function contextOfTopic(topic: unknown): LiveContext {
  const context = contextOf(topic)
  if (context !== undefined) return context
  throw new InvalidError(`a topic handle, as client.topic() gives it, is needed, not ${shown(topic)}`)
}
