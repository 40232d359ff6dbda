import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends a record for each line of the standard input, which is its key, and prints the partition that it went to. */
public class Produce {
  public static void main(String[] args) throws Exception {
    Map<String, Object> config = Map.of("bootstrap.servers", args[0]);
    BufferedReader keys = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
      for (String key = keys.readLine(); key != null; key = keys.readLine()) {
        System.out.println(producer.send(new ProducerRecord<>(args[1], key, "value")).get().partition());
      }
    }
  }
}
