"""Answers questions about a table: with DuckDB and ClickHouse through the views, with pyiceberg itself.

Its input is {"dir", "metadata", "duckdb", "clickhouse", "questions": {name: {engine: SQL}}}, its output one
line of JSON, {engine: {name: rows}}."""

import json, os, sys

asked = json.load(sys.stdin)
answers = {}


def ask_duckdb(sql):
    import duckdb, duckdb_extensions

    c = duckdb.connect()
    for extension in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(extension, con=c)
    c.execute(sql.replace("INSTALL iceberg;", ""))
    return lambda q: [[str(v) for v in row] for row in c.execute(q).fetchall()]


def ask_clickhouse(sql):
    from chdb import session

    os.chdir(asked["dir"])  # where it may read files
    s = session.Session(os.path.join(asked["dir"], "chdb"))
    for statement in sql.split(";\n"):
        if statement.strip():
            s.query(statement)
    rows = lambda q: str(s.query(q, "JSONCompactStringsEachRow")).splitlines()
    return lambda q: [json.loads(row) for row in rows(q)]


for engine, start in (("duckdb", ask_duckdb), ("clickhouse", ask_clickhouse)):
    ask = start(asked[engine])
    answers[engine] = {name: ask(q[engine]) for name, q in asked["questions"].items()}

from pyiceberg.table import StaticTable

rows = StaticTable.from_metadata(asked["metadata"]).scan(selected_fields=("id", "snapshot", "data")).to_arrow().to_pylist()
answers["pyiceberg"] = {"all": [[f'{r["id"]} {r["snapshot"]} {r["data"]}'] for r in rows]}
print(json.dumps(answers))
