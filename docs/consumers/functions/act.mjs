// What the function does: it writes down what happened, in the transaction that stores the id.
import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import sqlite from "node-sqlite3-wasm";

// This SQLite locks with a directory, which a process that is killed leaves behind. One process
// uses the file. (From Node 22.5 on there is node:sqlite, without such a lock.)
rmSync(process.argv[2] + ".lock", { recursive: true, force: true });
const db = new sqlite.Database(process.argv[2]);
db.run("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, what TEXT)");
db.run("CREATE TABLE IF NOT EXISTS dead (id TEXT PRIMARY KEY, why TEXT, event TEXT, data TEXT)");

// act tries five times. What still fails is a dead letter: the others wait no longer.
export async function act(event, data) {
  if (!event.type.startsWith("dev.kubebridge.resource.") || event.initial) {
    return; // about the stream, or what existed before: no change
  }
  const key = [event.source, event.informer, event.id].join(" ");
  let why;
  for (const pause of [100, 300, 1000, 3000, 0]) {
    try {
      const line = what(event, data);
      return once("done (id, what)", [key, line], line);
    } catch (error) {
      why = error.message;
      await setTimeout(pause);
    }
  }
  const letter = [key, why, JSON.stringify(event), data];
  once("dead (id, why, event, data)", letter, `given up ${event.name}: ${why}`);
}

function what(event, data) {
  const values = JSON.parse(data).data;
  if (!values) throw new Error("no data");
  return [event.type.split(".").pop(), event.name, ...Object.values(values)].join(" ");
}

function once(table, row, line) {
  const marks = row.map(() => "?").join(", ");
  const { changes } = db.run(`INSERT OR IGNORE INTO ${table} VALUES (${marks})`, row);
  if (changes > 0) console.log(line);
}
