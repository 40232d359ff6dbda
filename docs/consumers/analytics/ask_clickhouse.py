import sys

from chdb.session import Session

print(Session("clickhouse").query(open(sys.argv[1]).read(), "TSV"), end="")
