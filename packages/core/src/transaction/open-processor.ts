import type { ClientContext } from "../client/context.ts"
import type { Handler } from "../handler/handler-context.ts"
import type { TopicRef } from "../producer/producer.ts"
import { checkProcessOptions, type ProcessOptions } from "./process-options.ts"
import { GroupProcessor, type Processor } from "./processor.ts"

/** `client.process`. @throws InvalidError, UnsupportedError for the options; ClosedError */
export function openProcessor<I extends TopicRef, O extends TopicRef | undefined>(
  client: ClientContext,
  options: ProcessOptions<I, O>,
): Processor {
  const settings = checkProcessOptions(client, options as unknown as ProcessOptions)
  return new GroupProcessor(client, settings, options.handler as unknown as Handler)
}
