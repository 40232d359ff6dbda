"""What the function does: it writes down what happened, in the transaction that stores the id."""
import json
import sqlite3
import sys
import time

db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, what TEXT)")
db.execute("CREATE TABLE IF NOT EXISTS dead (id TEXT PRIMARY KEY, why TEXT, event TEXT, data BLOB)")


def act(event, data):
    """Tries five times. What still fails is a dead letter: the others wait no longer."""
    if not event["type"].startswith("dev.kubebridge.resource.") or event.get("initial"):
        return  # about the stream, or what existed before: no change
    key = " ".join([event["source"], event["informer"], event["id"]])
    for pause in 0.1, 0.3, 1, 3, 0:
        try:
            return do(key, event, data)
        except Exception as error:
            why = str(error)
            time.sleep(pause)
    letter = key, why, json.dumps(event), data
    if db.execute("INSERT OR IGNORE INTO dead VALUES (?, ?, ?, ?)", letter).rowcount:
        print(f"given up {event['name']}: {why}", flush=True)


def do(key, event, data):
    values = json.loads(data).get("data")
    if values is None:
        raise ValueError("no data")
    what = " ".join([event["type"].rpartition(".")[2], event["name"], *values.values()])
    with db:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (key, what)).rowcount:
            print(what, flush=True)
