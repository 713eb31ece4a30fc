/** What one broker is told. */
export interface BrokerSettings {
  /** From 1. */
  readonly node: number
  readonly directory: string
  readonly clientPort: number
  /** What clients are told to connect to: the proxy's port where there is one. */
  readonly advertisedPort: number
  readonly internalPort: number
  readonly controllerPorts: readonly number[]
  readonly more: Readonly<Record<string, string>>
}

/**
 * The text of `server.properties`: broker and controller in one process. Other brokers talk over a listener of their own, so a proxy is
 * between clients and brokers alone. Limits are short, so that tests wait little.
 */
export function brokerProperties(settings: BrokerSettings): string {
  const { node, directory, clientPort, advertisedPort, internalPort, controllerPorts } = settings
  const brokers = controllerPorts.length
  const copies = brokers === 1 ? 1 : 3
  const all: Record<string, string | number> = {
    "process.roles": "broker,controller",
    "node.id": node,
    "controller.quorum.voters": controllerPorts.map((port, index) => `${index + 1}@127.0.0.1:${port}`).join(","),
    listeners: `CLIENT://127.0.0.1:${clientPort},INTERNAL://127.0.0.1:${internalPort},CONTROLLER://127.0.0.1:${controllerPorts[node - 1]}`,
    "advertised.listeners": `CLIENT://127.0.0.1:${advertisedPort},INTERNAL://127.0.0.1:${internalPort}`,
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": `${directory}/data`,
    "default.replication.factor": copies,
    "min.insync.replicas": brokers === 1 ? 1 : 2,
    "offsets.topic.replication.factor": copies,
    "transaction.state.log.replication.factor": copies,
    "transaction.state.log.min.isr": brokers === 1 ? 1 : 2,
    "share.coordinator.state.topic.replication.factor": copies,
    "share.coordinator.state.topic.min.isr": brokers === 1 ? 1 : 2,
    ...forTests,
    ...settings.more,
  }
  return Object.entries(all)
    .map(([name, value]) => `${name}=${value}\n`)
    .join("")
}

/** Words to the console alone, and of Kafka's thousands of lines those that tell why something fails. */
export const log4jSettings = `Configuration:
  status: "ERROR"
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: "%d{HH:mm:ss,SSS} %p %m (%c{1})%n"
  Loggers:
    Root:
      level: "WARN"
      AppenderRef:
        - ref: STDOUT
    Logger:
      - name: "kafka.server.KafkaRaftServer"
        level: "INFO"
      - name: "org.apache.kafka.controller.ReplicationControlManager"
        level: "INFO"
`

const forTests = {
  "auto.create.topics.enable": "false",
  "offsets.topic.num.partitions": 4,
  "transaction.state.log.num.partitions": 4,
  "share.coordinator.state.topic.num.partitions": 4,
  // Groups: members that are gone are noticed soon.
  "group.initial.rebalance.delay.ms": 0,
  "group.min.session.timeout.ms": 500,
  "group.consumer.min.session.timeout.ms": 500,
  "group.consumer.session.timeout.ms": 3000,
  "group.consumer.min.heartbeat.interval.ms": 100,
  "group.consumer.heartbeat.interval.ms": 300,
  // A join right behind another one would wait a second to be dealt its partitions.
  "group.consumer.assignment.interval.ms": 0,
  // A broker that was killed can register again, and lead, soon.
  "broker.session.timeout.ms": 3000,
  "broker.heartbeat.interval.ms": 300,
  // Retention and compaction happen while a test waits for them.
  "log.initial.task.delay.ms": 500,
  "log.retention.check.interval.ms": 500,
  "log.segment.delete.delay.ms": 500,
  "log.cleaner.backoff.ms": 300,
  "log.cleaner.min.cleanable.ratio": 0.01,
  "log.cleaner.dedupe.buffer.size": 4194304,
  // Small: many tests share a machine.
  "num.network.threads": 2,
  "num.io.threads": 4,
  "background.threads": 2,
  "num.recovery.threads.per.data.dir": 1,
}
