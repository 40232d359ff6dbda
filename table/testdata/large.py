"""Measures the view state_at in DuckDB: {"views": SQL, "times": [time]}. It asks each question three times."""

import json, sys, time

import duckdb, duckdb_extensions

asked = json.load(sys.stdin)
c = duckdb.connect()
for extension in ("avro", "httpfs", "iceberg"):
    duckdb_extensions.import_extension(extension, con=c)
c.execute(asked["views"].replace("INSTALL iceberg;", ""))
for at in asked["times"]:
    for what in ("count(*), count(DISTINCT id)", "sum(length(data))"):
        took = []
        for _ in range(3):
            began, cpu = time.perf_counter(), time.process_time()
            answer = c.execute(f"SELECT {what} FROM state_at('{at}+00')").fetchone()
            took.append(f"{time.perf_counter() - began:.2f} s ({time.process_time() - cpu:.2f} s of CPU)")
        print(at, what, answer, *took)
