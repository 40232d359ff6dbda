import sys

import duckdb
from stream import ATTRIBUTES, copy

db = duckdb.connect("k8s.duckdb")
TYPES = dict.fromkeys([*ATTRIBUTES, "stream"], "TEXT") | {
    "time": "TIMESTAMPTZ", "notbefore": "TIMESTAMPTZ", "data": "JSON", "position": "BIGINT"}
columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
db.execute(f"CREATE TABLE IF NOT EXISTS events ({columns}, PRIMARY KEY (source, informer, id))")


def store(lines):
    with open("batch.json", "w") as batch:  # many times as fast as executemany
        batch.writelines(lines)
    db.execute("INSERT OR REPLACE INTO events SELECT * FROM"
               f" read_json('batch.json', format='newline_delimited', columns={TYPES})")


def position_in(stream):
    query = "SELECT max(position) FROM events WHERE stream = ?"
    position = db.execute(query, [stream]).fetchone()[0]
    if position is None and db.execute("SELECT 1 FROM events LIMIT 1").fetchone():
        print("the stream was recreated: read from its start", file=sys.stderr)
    return position or 0


copy(position_in, store)
for row in db.execute(open("incomplete.sql").read()).fetchall():
    print("what exists may be wrong since a gap:", *row, file=sys.stderr)
