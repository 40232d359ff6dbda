"""Prints the events of the fleet about one object, in the order of the stream, until it is gone."""
import asyncio
from urllib.parse import unquote

import nats
from nats.js.api import AckPolicy, ConsumerConfig


async def main():
    nc = await nats.connect("nats://127.0.0.1:4223")
    consumer = await nc.jetstream().pull_subscribe(
        "k8s.*.core.*.configmaps.shop.colours.*", stream="FLEET",
        config=ConsumerConfig(ack_policy=AckPolicy.NONE))
    clusters = {"/clusters/north", "/clusters/south"}
    while clusters:
        for message in await consumer.fetch(1, timeout=60):
            event = {name: unquote(value) for name, value in message.headers.items()}
            print(event["ce-source"], event["ce-type"].split(".")[-1], event["ce-name"])
            if event["ce-type"].endswith(".deleted"):
                clusters.discard(event["ce-source"])
    await nc.close()


asyncio.run(main())
