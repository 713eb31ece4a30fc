/** Configurations of topics and brokers (DescribeConfigs). */
import { ConnectionError, MillraceError } from "@millrace/contract"
import type { Cluster } from "../cluster/cluster.ts"
import { errorCode, kafkaError, meansNoTopic } from "../errors.ts"
import { topicNameOf } from "../names.ts"
import { describeConfigsApi } from "../protocol/api.ts"
import type { DescribeConfigsResult } from "../protocol/messages.generated.ts"
import { noTopic, topicText } from "../topic-words.ts"
import type { TopicConfig } from "./topic-config.ts"

/** Kinds of things with a configuration, and where a value comes from (Kafka's `ConfigResource.Type`, `ConfigSource`). */
const topicResource = 2
const brokerResource = 4
const setForTopic = 1

/** How many brokers are tried for a value that all have, and how long each, ms. */
const mostBrokersTried = 3
const reachMs = 3_000

/** How many topics are asked for at once: an answer has some dozens of values a topic. */
const topicsARequest = 200

/** The configuration of each topic, in order. A topic that went meanwhile is a NotFoundError. */
export async function topicConfigs(
  cluster: Cluster,
  names: readonly string[],
): Promise<(TopicConfig | MillraceError)[]> {
  const configs: (TopicConfig | MillraceError)[] = []
  for (let start = 0; start < names.length; start += topicsARequest) {
    const part = names.slice(start, start + topicsARequest)
    const resources = part.map((resourceName) => ({
      resourceType: topicResource,
      resourceName,
      configurationKeys: null,
    }))
    const answer = await cluster.request(describeConfigsApi, { resources }, { kind: "any" }, { readOnly: true })
    const byName = new Map(answer.results.map((result) => [result.resourceName, result]))
    for (const name of part) configs.push(readConfig(name, byName.get(name)))
  }
  return configs
}

/**
 * One value of a broker's configuration, by the first broker that can be reached; `undefined` when it is not told, for example since this
 * user may not look.
 * @throws ConnectionError when the cluster answered, but none of the addresses that it gives for its brokers does
 */
export async function brokerConfig(cluster: Cluster, name: string): Promise<string | undefined> {
  let failure: MillraceError | undefined
  for (const { id, host, port } of cluster.nodes.slice(0, mostBrokersTried)) {
    const resource = { resourceType: brokerResource, resourceName: String(id), configurationKeys: [name] }
    try {
      const connection = await cluster.connection({ kind: "node", id }, { timeoutMs: reachMs })
      const answer = await connection.request(describeConfigsApi, { resources: [resource] }, { readOnly: true })
      return answer.results[0]?.configs.find((config) => config.name === name)?.value ?? undefined
    } catch (error) {
      if (!(error instanceof MillraceError) || !error.retryable) throw error
      const message = `the address that Kafka gives for its broker ${id}, ${host}:${port}, cannot be reached (the broker's advertised.listeners): ${error.message}`
      failure = new ConnectionError(message, { cause: error, context: { server: `${host}:${port}` } })
    }
  }
  if (failure !== undefined) throw failure
  return undefined
}

function readConfig(name: string, result: DescribeConfigsResult | undefined): TopicConfig | MillraceError {
  if (result === undefined) return new MillraceError("protocol", `Kafka told no configuration of ${topicText(name)}`)
  if (meansNoTopic(result.errorCode)) return noTopic(name)
  if (result.errorCode !== errorCode.none) {
    const what = `reading the configuration of ${topicText(name)}`
    const context = { ...topicNameOf(name) }
    return kafkaError(result.errorCode, { what, context, detail: result.errorMessage, readOnly: true })
  }
  const told = result.configs.filter((config) => config.value !== null)
  return {
    values: new Map(told.map((config) => [config.name, config.value as string])),
    overridden: new Set(told.filter((config) => config.configSource === setForTopic).map((config) => config.name)),
  }
}
