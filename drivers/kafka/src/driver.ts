import { CancelledError, type Driver, type Session, TimeoutError } from "@millrace/contract"
import { systemClock, systemRandom } from "@millrace/runtime"
import { brokerConfig } from "./catalog/config-lookup.ts"
import { KafkaCluster } from "./cluster/kafka-cluster.ts"
import { kafkaRelease } from "./kafka-version.ts"
import { defaultMessageBytes, kafkaManifest } from "./manifest.ts"
import { kafkaOptions, kafkaSettings } from "./options.ts"
import { KafkaSession } from "./session.ts"

/**
 * Apache Kafka: `kafka://host:9092,other:9092?compression=zstd`. On this driver's own implementation of the protocol; brokers from 2.4
 * on, without TLS and SASL.
 */
export const kafkaDriver: Driver = {
  schemes: ["kafka"],
  options: kafkaOptions,
  manifest: kafkaManifest({ backend: "Apache Kafka", messageBytes: defaultMessageBytes }),
  async connect(target, { timeoutMs, signal, onConnection }): Promise<Session> {
    const settings = kafkaSettings(target)
    const { bootstrap, clientId, requestTimeoutMs, metadataAgeMs } = settings
    const cluster = new KafkaCluster({
      bootstrap,
      clientId,
      requestTimeoutMs,
      metadataAgeMs,
      clock: systemClock,
      random: systemRandom,
      onConnection,
    })
    const names = bootstrap.map(({ host, port }) => `${host}:${port}`).join(", ")
    let gaveUp: Error | undefined
    const giveUp = (error: Error): void => {
      gaveUp ??= error
      void cluster.close()
    }
    const abort = (): void =>
      giveUp(new CancelledError(`connecting to Kafka at ${names} was given up`, { cause: signal?.reason }))
    const late = (): void => {
      const message = `Kafka at ${names} was not reached within ${timeoutMs} ms`
      giveUp(new TimeoutError(message, { outcome: "rejected" }))
    }
    const timer = systemClock.setTimer(timeoutMs, late)
    if (signal?.aborted === true) abort()
    signal?.addEventListener("abort", abort, { once: true })
    try {
      await cluster.connect(timeoutMs)
      const backend = kafkaRelease(cluster.feature("metadata.version"))
      const manifest = kafkaManifest({ backend, messageBytes: await messageBytesOf(cluster) })
      if (gaveUp !== undefined) throw gaveUp
      return new KafkaSession(cluster, { settings, manifest, clock: systemClock, random: systemRandom })
    } catch (error) {
      await cluster.close()
      throw gaveUp ?? error
    } finally {
      timer.cancel()
      signal?.removeEventListener("abort", abort)
    }
  },
}

/** The broker's limit of a batch; Kafka's default where it is not told. */
async function messageBytesOf(cluster: KafkaCluster): Promise<number> {
  const bytes = Number(await brokerConfig(cluster, "message.max.bytes"))
  return Number.isInteger(bytes) && bytes > 0 ? bytes : defaultMessageBytes
}
