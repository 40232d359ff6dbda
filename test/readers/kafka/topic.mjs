// Prints the table that compacted topics are: each key whose last value is not null, as a line of
// JSON with its value in base64.
//
//   node topic.mjs <broker> <topic>...
import kafkajs from "kafkajs";

const [broker, ...topics] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ brokers: [broker], logLevel: kafkajs.logLevel.ERROR });
const admin = kafka.admin();
await admin.connect();
const ends = new Map();
for (const topic of topics) {
  for (const { partition, high } of await admin.fetchTopicOffsets(topic)) {
    if (high !== "0") ends.set(`${topic}/${partition}`, BigInt(high));
  }
}
await admin.disconnect();

const consumer = kafka.consumer({ groupId: `reader-${process.pid}-${Date.now()}` });
await consumer.connect();
await consumer.subscribe({ topics, fromBeginning: true });
const table = new Map();
await new Promise((done, failed) => {
  const eachMessage = async ({ topic, partition, message }) => {
    if (message.value === null) {
      table.delete(message.key.toString());
    } else {
      table.set(message.key.toString(), message.value);
    }
    const place = `${topic}/${partition}`;
    if (ends.has(place) && BigInt(message.offset) + 1n >= ends.get(place)) ends.delete(place);
    if (ends.size === 0) done();
  };
  consumer.run({ autoCommit: false, eachMessage }).catch(failed);
});
await consumer.disconnect();
for (const [key, value] of table) {
  console.log(JSON.stringify({ key, value: value.toString("base64") }));
}
