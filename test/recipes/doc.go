// Package recipes runs the pages of docs/consumers: a newcomer's walk for each audience, with the
// page's own commands and programs, over a real control plane and a bridge.
//
// A page is its fenced blocks, from top to bottom:
//
//   - a block with a title ("```python title="load.py"") is a file of that name; so is each file of
//     the folder of the page's name;
//   - a block of sh is run, in one shell for the whole page. A block that installs packages is not
//     run: their versions are compared with those that make test-recipes has installed;
//   - a block of kafka-topics.sh is not run either: its topic is created as it says;
//   - a block of text is what the block of sh before it prints. "…" stands for anything; times, and
//     numbers of three digits and more, for any other.
//
// Addresses of this machine are replaced by free ones. PYTHON, TABLE_PYTHON, NODE_DIR, JARS,
// KAFKA_BROKER and NATS_SERVER name what make test-recipes has installed; without them the tests
// are skipped.
package recipes
