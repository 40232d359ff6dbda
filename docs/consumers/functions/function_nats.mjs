import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, nanos } from "@nats-io/transport-node";
import { act } from "./act.mjs";

const nc = await connect({ servers: "nats://127.0.0.1:4222" });
const name = process.argv[3];
await (await jetstreamManager(nc)).consumers.add("K8S", {
  durable_name: name, filter_subject: "k8s.*.core.*.configmaps.shop.>",
  // The next event waits for this one: in order. One that was in flight in a crash comes again.
  ack_policy: AckPolicy.Explicit, max_ack_pending: 1, ack_wait: nanos(10_000),
});
const consumer = await jetstream(nc).consumers.get("K8S", name);
for (;;) {
  const m = await consumer.next({ expires: 5000 });
  if (!m) {
    const info = await consumer.info();
    if (process.argv.includes("--once") && info.num_pending + info.num_ack_pending === 0) break;
    continue;
  }
  if (m.headers?.has("ce-id")) {
    const event = {};
    for (const key of m.headers.keys()) {
      if (key.startsWith("ce-")) event[key.slice(3)] = decodeURIComponent(m.headers.get(key));
    }
    await act(event, new TextDecoder().decode(m.data));
  }
  await m.ackAck(); // the effect is stored
}
await nc.close();
