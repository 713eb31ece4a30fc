// Writes transactions by Kafka's own producer: each argument behind the topic is one, "commit:3" or "abort:2" with its number of records;
// "open:1" is left open until the input ends, and aborted then.
import java.util.Properties;
import org.apache.kafka.clients.producer.*;

class TransactionsWriter {
  public static void main(String[] args) throws Exception {
    Properties config = new Properties();
    config.put("bootstrap.servers", args[0]);
    config.put("transactional.id", args[1]);
    config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
      producer.initTransactions();
      for (int index = 3; index < args.length; index++) {
        String[] words = args[index].split(":");
        producer.beginTransaction();
        for (int record = 0; record < Integer.parseInt(words[1]); record++)
          producer.send(new ProducerRecord<>(args[2], 0, null, words[0] + index + "-" + record)).get();
        if (words[0].equals("commit")) producer.commitTransaction();
        else if (words[0].equals("abort")) producer.abortTransaction();
        else {
          System.out.println("open");
          System.in.read();
          producer.abortTransaction();
        }
      }
    }
    System.out.println("done");
  }
}
