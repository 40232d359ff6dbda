// Prints the keys of a key-value bucket that exist, each as a line of JSON with its value in base64, as any user of nats.js reads them.
//
//   node bucket.mjs <url> <bucket>
import { connect } from "@nats-io/transport-node";
import { Kvm } from "@nats-io/kv";

const [url, bucket] = process.argv.slice(2);
const nc = await connect({ servers: url });
const kv = await new Kvm(nc).open(bucket);
for await (const key of await kv.keys()) {
  const entry = await kv.get(key);
  console.log(JSON.stringify({ key, value: Buffer.from(entry.value).toString("base64") }));
}
await nc.close();
