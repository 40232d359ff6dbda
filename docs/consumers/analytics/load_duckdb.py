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
    query = "SELECT coalesce(max(position), 0) FROM events WHERE stream = ?"
    return db.execute(query, [stream]).fetchone()[0]


copy(position_in, store)
