// Reads a JetStream stream from its beginning and prints each message as a line of JSON: its subject, its Nats-Msg-Id, the attributes that the
// CloudEvents SDK finds in it, and its data in base64, fetched from the object store where the event has a dataref.
//
//   node read.mjs <url> <stream>
//
// The SDK has no binding for NATS. Its binding for HTTP has the same header names, so a message is handed to that once its header values are decoded
// as the NATS binding says.
import { connect } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { Objm } from "@nats-io/obj";
import { HTTP } from "cloudevents";

const [url, stream] = process.argv.slice(2);
const nc = await connect({ servers: url });
const js = jetstream(nc);
const info = await (await jetstreamManager(nc)).streams.info(stream);

for (const m of await read(info.state.messages)) {
  const event = HTTP.toEvent({ headers: httpHeaders(m.headers), body: new TextDecoder().decode(m.data) });
  event.validate();
  const { data, data_base64, ...attributes } = event.toJSON();
  let bytes = m.data;
  if (isStructured(m.headers)) {
    bytes = structuredData(new TextDecoder().decode(m.data));
  }
  if (attributes.dataref) {
    bytes = await claimed(attributes.dataref);
  }
  const line = { subject: m.subject, msgid: m.headers.get("Nats-Msg-Id"), attributes, data: Buffer.from(bytes).toString("base64") };
  console.log(JSON.stringify(line));
}
await nc.close();

async function read(count) {
  const messages = [];
  if (count === 0) {
    return messages;
  }
  const consumer = await js.consumers.get(stream);
  for await (const m of await consumer.fetch({ max_messages: count, expires: 20_000 })) {
    messages.push(m);
  }
  return messages;
}

function isStructured(headers) {
  return headers.get("Content-Type").startsWith("application/cloudevents+json");
}

function httpHeaders(headers) {
  if (isStructured(headers)) {
    return { "content-type": headers.get("Content-Type") };
  }
  const found = {};
  for (const name of headers.keys()) {
    if (name.startsWith("ce-")) {
      found[name === "ce-datacontenttype" ? "content-type" : name] = decodeURIComponent(headers.get(name));
    }
  }
  return found;
}

// structuredData is the text of the member data, byte for byte: parsed and printed again it would be other bytes.
function structuredData(text) {
  const start = text.indexOf(',"data":');
  return new TextEncoder().encode(start < 0 ? "" : text.slice(start + ',"data":'.length, -1));
}

async function claimed(dataref) {
  const ref = new URL(dataref);
  const bucket = await new Objm(nc).open(dataref.split("/")[2]);
  return await bucket.getBlob(decodeURIComponent(ref.pathname.slice(1)));
}
