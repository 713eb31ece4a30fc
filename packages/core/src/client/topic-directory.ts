import type { Catalog, TopicDescription, TopicName } from "@millrace/contract"
import type { TopicDirectory } from "./context.ts"
import { topicKey } from "./names.ts"

/**
 * Topic descriptions by name. Concurrent questions about one topic share one request; a failed one is not remembered, and an answer
 * that was on its way when the topic was forgotten is given to those who asked but not kept.
 */
export class CachedTopicDirectory implements TopicDirectory {
  readonly #catalog: Catalog
  readonly #known = new Map<string, Promise<TopicDescription>>()

  constructor(catalog: Catalog) {
    this.#catalog = catalog
  }

  describe(name: TopicName): Promise<TopicDescription> {
    const key = topicKey(name)
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const asked = this.#catalog.describeTopic({ stream: name.stream, topic: name.topic })
    this.#known.set(key, asked)
    asked.catch(() => {
      if (this.#known.get(key) === asked) this.#known.delete(key)
    })
    return asked
  }

  forget(name: TopicName): void {
    this.#known.delete(topicKey(name))
  }
}
