/** Apache Kafka for Millrace. */

export type { KafkaTopicSettings } from "./catalog/topic-config.ts"
export { kafkaDriver } from "./driver.ts"
export type { KafkaNative } from "./session.ts"
