import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/** Keeps both tables, and prints one of them when it has read all. */
public class Tables {
  static void current(StreamsBuilder builder) {
    builder.<String, String>table("current.configmaps")
        .filter((key, object) -> !key.startsWith("informers/"), Materialized.as("current"));
  }

  static void history(StreamsBuilder builder) {
    builder.<String, String>stream("history.configmaps")
        .processValues(Version::new)
        .groupByKey()
        .reduce((one, other) -> one.compareTo(other) > 0 ? one : other)
        .filter((key, version) -> !version.split(" ")[1].endsWith(".deleted"))
        .mapValues(version -> version.split(" ", 3)[2], Materialized.as("history"));
  }

  /** Puts the sequence and the type before the object. Events about the stream are passed over. */
  static class Version extends ContextualFixedKeyProcessor<String, String, String> {
    @Override
    public void process(FixedKeyRecord<String, String> event) {
      String type = header(event, "ce_type");
      if (type.startsWith("dev.kubebridge.resource.")) {
        String version = header(event, "ce_sequence") + " " + type + " " + event.value();
        context().forward(event.withValue(version));
      }
    }

    static String header(FixedKeyRecord<String, String> event, String name) {
      var header = event.headers().lastHeader(name);
      return header == null ? "" : new String(header.value());
    }
  }

  public static void main(String[] args) throws Exception {
    var settings = new Properties();
    settings.put("application.id", "tables");
    settings.put("bootstrap.servers", "127.0.0.1:9092");
    settings.put("state.dir", "tables-state");
    settings.put("commit.interval.ms", 1000);
    settings.put("session.timeout.ms", 6000); // so long a new one waits for one that ended
    settings.put("default.key.serde", Serdes.StringSerde.class);
    settings.put("default.value.serde", Serdes.StringSerde.class);
    var builder = new StreamsBuilder();
    current(builder);
    history(builder);
    try (var streams = new KafkaStreams(builder.build(), settings);
        var admin = Admin.create(settings)) {
      streams.start();
      while (streams.state() != KafkaStreams.State.RUNNING || lag(admin) > 0) {
        Thread.sleep(200);
      }
      var type = QueryableStoreTypes.<String, String>keyValueStore();
      var table = streams.store(StoreQueryParameters.fromNameAndType(args[0], type));
      var json = new ObjectMapper();
      try (var rows = table.all()) {
        while (rows.hasNext()) {
          var row = rows.next();
          var version = json.readTree(row.value).at("/metadata/resourceVersion").asText();
          System.out.println(row.key + " " + version);
        }
      }
    }
  }

  /** How many records of the topics are not in the tables. */
  static long lag(Admin admin) throws Exception {
    var names = List.of("current.configmaps", "history.configmaps");
    var ends = admin.listOffsets(admin.describeTopics(names).allTopicNames().get().values().stream()
        .flatMap(topic -> IntStream.range(0, topic.partitions().size())
            .mapToObj(partition -> new TopicPartition(topic.name(), partition)))
        .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest())));
    var done = admin.listConsumerGroupOffsets("tables").partitionsToOffsetAndMetadata().get();
    long lag = 0;
    for (var end : ends.all().get().entrySet()) {
      var offset = done.get(end.getKey());
      lag += end.getValue().offset() - (offset == null ? 0 : offset.offset());
    }
    return lag;
  }
}
