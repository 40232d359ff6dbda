import asyncio
import sys
from urllib.parse import unquote

import nats
from act import act
from nats.js.api import ConsumerConfig


async def main():
    nc = await nats.connect("nats://127.0.0.1:4222")
    # The next event waits for this one: in order. One that was in flight in a crash comes again.
    config = ConsumerConfig(max_ack_pending=1, ack_wait=10)
    subject = "k8s.*.core.*.configmaps.shop.>"
    consumer = await nc.jetstream().pull_subscribe(subject, sys.argv[2], "K8S", config)
    while True:
        try:
            [m] = await consumer.fetch(1, timeout=5)
        except nats.errors.TimeoutError:
            info = await consumer.consumer_info()
            if "--once" in sys.argv and info.num_pending + info.num_ack_pending == 0:
                break
            continue
        headers = m.headers or {}
        if "ce-id" in headers:
            act({k[3:]: unquote(v) for k, v in headers.items() if k.startswith("ce-")}, m.data)
        await m.ack_sync(timeout=30)  # the effect is stored; the broker may be busy


asyncio.run(main())
