import re
import sys
from pathlib import Path

import duckdb

db = duckdb.connect("k8s.duckdb")
*before, last = duckdb.extract_statements(open(sys.argv[1]).read())
for statement in before:
    db.execute(statement)
query = last.query.rstrip().rstrip(";")
for row in db.execute(f"SELECT COLUMNS(*)::TEXT FROM ({query})", sys.argv[2:]).fetchall():
    print(*row)
for at in sys.argv[2:]:
    if re.match(r"\d{4}-\d\d-\d\d", at):
        gaps = Path(__file__).with_name("gaps.sql").read_text()
        for informer, resource, reason, since, until in db.execute(gaps, [at]).fetchall():
            print(f"not known at {at}: {informer} {resource}, {reason} between {since} and {until}", file=sys.stderr)
