// A member of a group by Kafka's own consumer. Says what it is given and what it reads, and leaves when its input ends.
import java.io.IOException;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

class GroupPeer {
  public static void main(String[] args) throws Exception {
    String servers = args[0], group = args[1], topic = args[2], protocol = args[3], assignor = args[4];
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", servers);
    config.put("group.id", group);
    config.put("group.protocol", protocol);
    config.put("auto.offset.reset", "earliest");
    config.put("enable.auto.commit", "false");
    if (protocol.equals("classic")) {
      config.put("session.timeout.ms", "6000");
      config.put("heartbeat.interval.ms", "500");
      if (!assignor.equals("default")) config.put("partition.assignment.strategy", assignor);
    }
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      Set<TopicPartition> held = new TreeSet<>(Comparator.comparing(TopicPartition::partition));
      consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
          for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : consumer.committed(new HashSet<>(partitions)).entrySet())
            say("committed " + entry.getKey().partition() + " " + (entry.getValue() == null ? "none" : entry.getValue().offset()));
          held.addAll(partitions);
          sayHeld(held);
        }
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
          consumer.commitSync();
          held.removeAll(partitions);
          sayHeld(held);
        }
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
          say("lost " + partitions);
          held.removeAll(partitions);
        }
      });
      while (!over()) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        for (ConsumerRecord<byte[], byte[]> record : records) say("record " + record.partition() + " " + record.offset());
        if (!records.isEmpty()) consumer.commitSync();
      }
    }
    say("left");
  }

  static boolean over() throws IOException {
    return System.in.available() > 0 && System.in.read() >= 0;
  }

  static void sayHeld(Set<TopicPartition> held) {
    StringJoiner text = new StringJoiner(" ");
    for (TopicPartition partition : held) text.add(Integer.toString(partition.partition()));
    say("held " + text);
  }

  static synchronized void say(String line) {
    System.out.println(line);
  }
}
