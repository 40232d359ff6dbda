"""Runs statements in Spark and answers questions, as ask.py does.

Its input is {"dir", "jars", "statements": [SQL], "questions": {name: SQL}}, its output one line of JSON, {name: rows}.
The catalog of the directory is known by the name kubebridge."""

import json, re, sys

from pyspark.sql import SparkSession

asked = json.load(sys.stdin)
catalog = "spark.sql.catalog.kubebridge"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", ",".join(asked["jars"]))
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.warehouse.dir", asked["dir"] + "/spark")
    .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
    .config(catalog + ".catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
    .config(catalog + ".uri", f"jdbc:sqlite:file:{asked['dir']}/catalog.db")
    .config(catalog + ".warehouse", asked["dir"])
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
for statement in asked["statements"]:
    print(spark.sql(statement).collect(), file=sys.stderr)
answers = {}
for name, question in asked["questions"].items():
    answers[name] = [[str(v) for v in row] for row in spark.sql(question).collect()]
print(json.dumps(answers))
