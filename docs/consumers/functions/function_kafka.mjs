import kafkajs from "kafkajs";
import { act } from "./act.mjs";

const kafka = new kafkajs.Kafka({ brokers: ["127.0.0.1:9092"], logLevel: kafkajs.logLevel.ERROR });
// So long others wait for the partitions of one that was killed.
const times = { sessionTimeout: 6000, rebalanceTimeout: 15000 };
const consumer = kafka.consumer({ groupId: process.argv[3], ...times });
await consumer.connect();
await consumer.subscribe({ topic: "k8s.configmaps", fromBeginning: true });
let last = Infinity; // when something happened last, once there are partitions
consumer.on(consumer.events.GROUP_JOIN, () => (last = Date.now()));
await consumer.run({
  autoCommit: false,
  eachMessage: async ({ topic, partition, message }) => {
    const headers = message.headers ?? {};
    if ("ce_id" in headers) {
      const event = {};
      for (const key of Object.keys(headers)) {
        if (key.startsWith("ce_")) event[key.slice(3)] = headers[key].toString();
      }
      await act(event, message.value?.toString());
    }
    const offset = String(BigInt(message.offset) + 1n);
    await consumer.commitOffsets([{ topic, partition, offset }]); // the effect is stored
    last = Date.now();
  },
});
while (!process.argv.includes("--once") || !(Date.now() - last > 6000)) {
  await new Promise((resolve) => setTimeout(resolve, 500));
}
await consumer.disconnect();
