import sys

from act import act
from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": sys.argv[2],
                     "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     # so long others wait for the partitions of one that was killed
                     "session.timeout.ms": 6000, "max.poll.interval.ms": 15000})
consumer.subscribe(["k8s.configmaps"])
idle = 0
while not ("--once" in sys.argv and idle == 3):
    m = consumer.poll(2)
    idle = idle + 1 if m is None and consumer.assignment() else 0
    if m is None or m.error():
        continue
    headers = {k: v.decode() for k, v in m.headers() or []}
    if "ce_id" in headers:
        act({k[3:]: v for k, v in headers.items() if k.startswith("ce_")}, m.value())
    consumer.commit(m, asynchronous=False)  # the effect is stored
consumer.close()
