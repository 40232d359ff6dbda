import sys

import duckdb

db = duckdb.connect("k8s.duckdb")
*before, last = duckdb.extract_statements(open(sys.argv[1]).read())
for statement in before:
    db.execute(statement)
query = last.query.rstrip().rstrip(";")
for row in db.execute(f"SELECT COLUMNS(*)::TEXT FROM ({query})", sys.argv[2:]).fetchall():
    print(*row)
