import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client, for comparison. A record is a line: partition, offset, time in ms, key, value, headers; bytes are a point and base64, or
 * a tilde where there are none; headers are name=value, with commas between.
 *
 *   read BROKER TOPIC                prints every record, in the order of each partition
 *   produce BROKER TOPIC COMPRESSION sends the records of the input (offsets do not count; partition -1: by key), prints where each landed
 *   offsets BROKER GROUP             prints topic, partition and the committed offset
 */
public class Foreign {
  private static final PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "read" -> read(args[1], args[2]);
      case "produce" -> produce(args[1], args[2], args[3]);
      case "offsets" -> offsets(args[1], args[2]);
      default -> throw new IllegalArgumentException(args[0]);
    }
    out.flush();
  }

  private static void read(String broker, String topic) {
    Properties settings = settings(broker);
    settings.put("check.crcs", "true");
    settings.put("isolation.level", "read_committed");
    ByteArrayDeserializer bytes = new ByteArrayDeserializer();
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
      List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
          .map(info -> new TopicPartition(info.topic(), info.partition())).toList();
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
          StringBuilder headers = new StringBuilder();
          for (Header header : record.headers()) {
            if (headers.length() > 0) headers.append(',');
            headers.append(text(header.key().getBytes(StandardCharsets.UTF_8))).append(';').append(text(header.value()));
          }
          out.println(record.partition() + " " + record.offset() + " " + record.timestamp() + " "
              + text(record.key()) + " " + text(record.value()) + " " + headers);
        }
      }
    }
  }

  private static void produce(String broker, String topic, String compression) throws Exception {
    Properties settings = settings(broker);
    settings.put("compression.type", compression);
    settings.put("linger.ms", "50");
    ByteArraySerializer bytes = new ByteArraySerializer();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        String[] words = line.split(" ", -1);
        int partition = Integer.parseInt(words[0]);
        long time = Long.parseLong(words[2]);
        List<Header> headers = new ArrayList<>();
        for (String header : words[5].isEmpty() ? new String[0] : words[5].split(",")) {
          String[] parts = header.split(";");
          headers.add(new RecordHeader(new String(bytes(parts[0]), StandardCharsets.UTF_8), bytes(parts[1])));
        }
        sent.add(producer.send(new ProducerRecord<>(topic, partition < 0 ? null : partition, time < 0 ? null : time,
            bytes(words[3]), bytes(words[4]), headers)));
      }
      producer.flush();
      for (Future<RecordMetadata> each : sent) out.println(each.get().partition() + " " + each.get().offset());
    }
  }

  private static void offsets(String broker, String group) throws Exception {
    try (Admin admin = Admin.create(settings(broker))) {
      Map<TopicPartition, OffsetAndMetadata> offsets =
          admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
      offsets.forEach((place, offset) -> out.println(place.topic() + " " + place.partition() + " " + offset.offset()));
    }
  }

  private static Properties settings(String broker) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", broker);
    return settings;
  }

  private static String text(byte[] bytes) {
    return bytes == null ? "~" : "." + Base64.getEncoder().encodeToString(bytes);
  }

  private static byte[] bytes(String text) {
    return text.equals("~") ? null : Base64.getDecoder().decode(text.substring(1));
  }
}
