"""What the function does: it writes down what happened, in the transaction that stores the id."""
import json
import sqlite3
import sys

db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, what TEXT)")


def act(event, data):
    operation = event["type"].rpartition(".")[2]
    if not event["type"].startswith("dev.kubebridge.resource.") or event.get("initial"):
        return  # about the stream, or what existed before: no change
    key = " ".join([event["source"], event["informer"], event["id"]])
    what = f"{operation} {event['name']} {json.loads(data).get('data')}"
    db.execute("BEGIN IMMEDIATE")
    if db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (key, what)).rowcount:
        print(what, flush=True)
    db.execute("COMMIT")
