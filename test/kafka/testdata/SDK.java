import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cloudevents.CloudEvent;
import io.cloudevents.http.HttpMessageFactory;
import io.cloudevents.kafka.CloudEventDeserializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Reads messages from lines of JSON with the CloudEvents SDK, and prints the attributes of each. */
public class SDK {
  public static void main(String[] args) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      CloudEvent event = read(json.readTree(line));
      ObjectNode attributes = json.createObjectNode();
      event.getAttributeNames().forEach(name -> attributes.put(name, String.valueOf(event.getAttribute(name))));
      event.getExtensionNames().forEach(name -> attributes.put(name, String.valueOf(event.getExtension(name))));
      out.println(attributes);
    }
  }

  private static CloudEvent read(JsonNode message) throws Exception {
    Map<String, String> headers = new HashMap<>();
    message.get("headers").properties().forEach(h -> headers.put(h.getKey(), h.getValue().asText()));
    byte[] body = message.get("body").binaryValue();
    if (message.get("key").asText().isEmpty()) {
      return HttpMessageFactory.createReader(headers, body).toEvent();
    }
    RecordHeaders record = new RecordHeaders();
    headers.forEach((name, value) -> record.add(name, value.getBytes(StandardCharsets.UTF_8)));
    return new CloudEventDeserializer().deserialize("topic", record, body);
  }
}
