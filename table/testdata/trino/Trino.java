import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.plugin.memory.MemoryPlugin;
import io.trino.server.testing.TestingTrinoServer;
import java.io.PrintStream;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Runs statements in Trino and answers questions, as spark.py does. The catalog of the directory is
 * known by the name kubebridge; views are made in memory.default.
 */
public final class Trino {
  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err); // where Trino says what it does
    ObjectMapper json = new ObjectMapper();
    JsonNode asked = json.readTree(System.in);
    String dir = asked.get("dir").asText();
    Map<String, List<List<String>>> answers = new LinkedHashMap<>();
    try (TestingTrinoServer server = TestingTrinoServer.create()) {
      server.installPlugin(new IcebergPlugin());
      server.installPlugin(new MemoryPlugin());
      server.createCatalog("memory", "memory");
      server.createCatalog("kubebridge", "iceberg", Map.of(
          "iceberg.catalog.type", "jdbc",
          "iceberg.jdbc-catalog.driver-class", "org.sqlite.JDBC",
          "iceberg.jdbc-catalog.connection-url", "jdbc:sqlite:file:" + dir + "/catalog.db",
          "iceberg.jdbc-catalog.catalog-name", "kubebridge",
          "iceberg.jdbc-catalog.default-warehouse-dir", dir,
          "fs.hadoop.enabled", "true")); // a directory's paths have no scheme
      String url = "jdbc:trino://" + server.getAddress() + "/memory/default?user=test&timezone=UTC";
      try (Connection connection = DriverManager.getConnection(url);
          Statement statement = connection.createStatement()) {
        for (JsonNode text : asked.get("statements")) {
          statement.execute(text.asText());
        }
        for (Map.Entry<String, JsonNode> question : asked.get("questions").properties()) {
          answers.put(question.getKey(), rows(statement, question.getValue().asText()));
        }
      }
    }
    out.println(json.writeValueAsString(answers));
    System.exit(0);
  }

  private static List<List<String>> rows(Statement statement, String question) throws Exception {
    List<List<String>> rows = new ArrayList<>();
    try (ResultSet answer = statement.executeQuery(question)) {
      while (answer.next()) {
        List<String> row = new ArrayList<>();
        for (int i = 1; i <= answer.getMetaData().getColumnCount(); i++) {
          row.add(Objects.toString(answer.getObject(i), "None")); // as Python writes it
        }
        rows.add(row);
      }
    }
    return rows;
  }
}
