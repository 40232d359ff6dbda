// Checks each line of the standard input against the JSON schema of CloudEvents 1.0, which the SDK carries in compiled form, and with the SDK's
// own rules. It prints a line for each: valid, or why not.
const path = require("path");
const modules = path.join(process.argv[2], "node_modules", "cloudevents");
const { CloudEvent } = require(modules);
const schema = require(path.join(modules, "dist", "schema", "v1.js"));

const validate = schema.default || schema;
for (const line of require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const event = JSON.parse(line);
  if (!validate(event)) {
    console.log("schema: " + JSON.stringify(validate.errors));
    continue;
  }
  try {
    new CloudEvent(event).validate();
    console.log("valid");
  } catch (err) {
    console.log("sdk: " + err.message);
  }
}
