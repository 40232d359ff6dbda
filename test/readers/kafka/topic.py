# Prints the table that compacted topics are: each key whose last value is not null, as a line of
# JSON with its value in base64.
#
#   python topic.py <broker> <topic>...
import base64
import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def main(broker, *topics):
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "reader",
                         "enable.auto.commit": False})
    ends = {}
    for topic in topics:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            place = TopicPartition(topic, partition)
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            if end > 0:
                ends[topic, partition] = end
    consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in ends])
    table = {}
    while ends:
        m = consumer.poll(30)
        if m is None or m.error():
            sys.exit(f"not read: {ends} ({m and m.error()})")
        table.pop(m.key(), None)
        if m.value() is not None:
            table[m.key()] = m.value()
        place = m.topic(), m.partition()
        if m.offset() + 1 >= ends.get(place, sys.maxsize):
            del ends[place]
    consumer.close()
    for key, value in table.items():
        print(json.dumps({"key": key.decode(), "value": base64.b64encode(value).decode()}))


main(*sys.argv[1:])
