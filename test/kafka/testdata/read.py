"""Reads topics from their beginning with librdkafka, understands the events with the CloudEvents SDK, and prints a line of JSON for each."""

import base64
import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.core.formats.json import JSONFormat
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


class Bytes(JSONFormat):
    """The SDK's format, but that the data of a binary message stays the bytes that it is."""

    def read_data(self, body, datacontenttype):
        return bytes(body)


def main(brokers, *topics):
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "enable.auto.commit": False})
    left = {}
    for topic in topics:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            if end > 0:
                left[topic, partition] = end
    consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in left])
    while left:
        message = consumer.poll(30)
        if message is None or message.error():
            sys.exit(f"no more messages: {message and message.error()}; still to come: {left}")
        show(message)
        place = message.topic(), message.partition()
        if message.offset() + 1 >= left[place]:
            del left[place]


def show(message):
    headers = dict(message.headers() or [])
    structured = headers.get("content-type", b"").startswith(b"application/cloudevents")
    kafka = KafkaMessage(headers=headers, key=message.key(), value=message.value())
    event = from_kafka_event(kafka) if structured else from_kafka_event(kafka, Bytes())
    attributes = {name: str(value) for name, value in event.get_attributes().items() if name != "time"}
    line = {"topic": message.topic(), "partition": message.partition(), "key": message.key().decode(), "attributes": attributes}
    line["time"] = event.get_time().timestamp() if event.get_time() else 0
    if structured:
        line["document"] = event.get_data()
    else:
        line["data"] = base64.b64encode(event.get_data()).decode()
    print(json.dumps(line))


main(*sys.argv[1:])
