import sys

from chdb.session import Session

db = Session("clickhouse")
for statement in open(sys.argv[1]).read().split(";\n"):
    if statement.strip():
        print(db.query(statement, "TSV"), end="")
