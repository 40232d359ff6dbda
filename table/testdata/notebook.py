"""Runs the notebook of the analytics page in the working directory, and writes its pictures there."""

import base64, sys

import duckdb, duckdb_extensions, nbformat
from nbclient import NotebookClient

for extension in ("avro", "httpfs", "iceberg"):  # what INSTALL would fetch
    duckdb_extensions.import_extension(extension, con=duckdb.connect())
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
count = 0
for output in (o for cell in notebook.cells for o in cell.get("outputs", [])):
    if "image/png" in output.get("data", {}):
        count += 1
        with open(f"picture-{count}.png", "wb") as file:
            file.write(base64.b64decode(output["data"]["image/png"]))
    print(output.get("text", ""), end="")
