// What the function does: it writes down what happened, in the transaction that stores the id.
import { rmSync } from "node:fs";
import sqlite from "node-sqlite3-wasm";

// This SQLite locks with a directory, which a process that is killed leaves behind. One process
// uses the file. (From Node 22.5 on there is node:sqlite, without such a lock.)
rmSync(process.argv[2] + ".lock", { recursive: true, force: true });
const db = new sqlite.Database(process.argv[2]);
db.run("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, what TEXT)");

export function act(event, data) {
  const operation = event.type.split(".").pop();
  if (!event.type.startsWith("dev.kubebridge.resource.") || event.initial) {
    return; // about the stream, or what existed before: no change
  }
  const key = [event.source, event.informer, event.id].join(" ");
  const what = `${operation} ${event.name} ${JSON.stringify(JSON.parse(data).data)}`;
  db.exec("BEGIN IMMEDIATE");
  if (db.run("INSERT OR IGNORE INTO done VALUES (?, ?)", [key, what]).changes > 0) {
    console.log(what);
  }
  db.exec("COMMIT");
}
