import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client, partition 0 of a topic:
 *
 *   write SERVERS TOPIC COUNT   COUNT records with each codec, one batch a codec where it fits
 *   read SERVERS TOPIC COUNT    prints COUNT records, one a line: offset:millis:key:value:name=value,… with bytes as hex and ~ for null
 */
class JavaClient {
  static final HexFormat hex = HexFormat.of();

  public static void main(String[] args) throws Exception {
    int count = Integer.parseInt(args[3]);
    if (args[0].equals("write")) write(args[1], args[2], count);
    else read(args[1], args[2], count);
  }

  static void write(String servers, String topic, int count) throws Exception {
    for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
      Map<String, Object> settings = Map.of("bootstrap.servers", servers, "compression.type", codec, "linger.ms", 200);
      try (KafkaProducer<byte[], byte[]> producer =
          new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
        for (int i = 0; i < count; i++) {
          byte[] key = i % 3 == 0 ? null : (codec + "-" + i % 3).getBytes(StandardCharsets.UTF_8);
          byte[] value = i % 7 == 0 ? null : (codec + " record " + i + " ").repeat(i % 5).getBytes(StandardCharsets.UTF_8);
          ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, 1_600_000_000_000L + i, key, value);
          record.headers().add("n", new byte[] {(byte) i}).add("n", null).add("é", "x".getBytes(StandardCharsets.UTF_8));
          producer.send(record);
        }
      }
    }
  }

  static void read(String servers, String topic, int count) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    Map<String, Object> settings = Map.of("bootstrap.servers", servers, "auto.offset.reset", "earliest", "check.crcs", true);
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(List.of(new TopicPartition(topic, 0)));
      consumer.seekToBeginning(consumer.assignment());
      long deadline = System.nanoTime() + 30_000_000_000L;
      for (int read = 0; read < count && System.nanoTime() < deadline; ) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
          out.println(text(record));
          read++;
        }
      }
    }
    out.flush();
  }

  static String text(ConsumerRecord<byte[], byte[]> record) {
    StringBuilder text = new StringBuilder();
    text.append(record.offset()).append(':').append(record.timestamp()).append(':').append(bytes(record.key())).append(':')
      .append(bytes(record.value())).append(':');
    String separator = "";
    for (Header header : record.headers()) {
      text.append(separator).append(hex.formatHex(header.key().getBytes(StandardCharsets.UTF_8))).append('=')
        .append(bytes(header.value()));
      separator = ",";
    }
    return text.toString();
  }

  static String bytes(byte[] bytes) {
    return bytes == null ? "~" : hex.formatHex(bytes);
  }
}
