import type { Headers, TopicName } from "@millrace/contract"
import type { ClientContext } from "../client/context.ts"
import { topicText } from "../client/names.ts"
import { SpooledProducer } from "../spool/spooled-producer.ts"
import { BackgroundProducer } from "./background-producer.ts"
import { DirectProducer } from "./direct-producer.ts"
import type { Producer } from "./producer.ts"
import { checkProducerOptions, type ProducerOptions } from "./producer-options.ts"

/**
 * @param own.headers See `PrepareOptions.own`: of a typed producer.
 * @throws InvalidError, UnsupportedError for the options; ClosedError after the client's close
 */
export function openProducer(
  client: ClientContext,
  name: TopicName,
  options: ProducerOptions | undefined,
  own?: { readonly headers: Headers },
): Producer {
  const checked = checkProducerOptions(`producer of topic "${topicText(name)}"`, options, client)
  const settings = { ...checked, ownHeaders: own?.headers }
  const { background } = settings
  if (background?.spool !== undefined) {
    const { spool } = background
    return new SpooledProducer(client, name, { ...settings, background: { ...background, spool } })
  }
  return background === undefined
    ? new DirectProducer(client, name, settings)
    : new BackgroundProducer(client, name, { ...settings, background })
}
