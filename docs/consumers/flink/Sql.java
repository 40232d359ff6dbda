import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.ResultKind;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** Runs files of SQL, and prints the rows that are there at the end. */
public class Sql {
  public static void main(String[] files) throws Exception {
    var flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    flink.getConfig().set("parallelism.default", "1");
    for (String file : files) {
      for (String statement : Files.readString(Path.of(file)).split(";\\s*\n")) {
        var set = statement.trim().split("'");
        if (statement.startsWith("SET")) {
          flink.getConfig().set(set[1], set[3]);
          continue;
        }
        var result = flink.executeSql(statement);
        if (statement.startsWith("INSERT")) {
          result.await();
          continue;
        }
        if (result.getResultKind() == ResultKind.SUCCESS) {
          continue;
        }
        var there = new ArrayList<Row>();
        try (var changes = result.collect()) {
          changes.forEachRemaining(row -> {
            RowKind kind = row.getKind();
            row.setKind(RowKind.INSERT);
            if (kind == RowKind.INSERT || kind == RowKind.UPDATE_AFTER) {
              there.add(row);
            } else if (!there.remove(row)) {
              throw new IllegalStateException("no such row: " + row);
            }
          });
        }
        there.forEach(System.out::println);
      }
    }
  }
}
