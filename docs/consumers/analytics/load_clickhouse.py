from chdb.session import Session
from stream import ATTRIBUTES, copy

db = Session("clickhouse")
columns = ", ".join(f"{name} String" for name in ATTRIBUTES)
db.query(f"CREATE TABLE IF NOT EXISTS events ({columns}, data String, stream String, position UInt64)"
         " ENGINE = ReplacingMergeTree ORDER BY (source, informer, id)")


def store(lines):
    if lines:
        db.query("INSERT INTO events FORMAT JSONEachRow " + "".join(lines))


def position_in(stream):
    query = f"SELECT max(position) FROM events WHERE stream = '{stream}'"
    return int(str(db.query(query, "TSV")))


copy(position_in, store)
