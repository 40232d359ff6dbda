// Reads messages from lines of JSON with the CloudEvents SDK, and prints the attributes of each.
const path = require("path");
const { HTTP, Kafka } = require(path.join(process.argv[2], "node_modules", "cloudevents"));

for (const line of require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { headers, key, body } = JSON.parse(line);
  const bytes = Buffer.from(body, "base64");
  const event = key ? Kafka.toEvent({ headers, key, value: bytes }) : HTTP.toEvent({ headers, body: bytes.toString() });
  const { data, ...attributes } = event.toJSON();
  console.log(JSON.stringify(attributes));
}
