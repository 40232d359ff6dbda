"""Reads a stream of the bridge in batches, from a position to the end."""
import asyncio
import json
import sys
from urllib.parse import unquote

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

ATTRIBUTES = """source informer id type subject time sequence partitionkey apiversion kind resource
 namespace name uid resourceversion previous manager managersubresource manageroperation lastmanager
 timesource notbefore initial inferred cause changed owners ownerkind ownername oversize
 dataref""".split()


def line(message, stream):
    """A line of JSON: the attributes that an event has, its place in the stream, and its data."""
    get, position = message.headers.get, message.metadata.sequence.stream
    row = {name: unquote(value) for name in ATTRIBUTES if (value := get("ce-" + name))}
    row |= {"stream": stream, "position": position}
    return f'{json.dumps(row)[:-1]}, "data": {message.data.decode() or "null"}}}\n'


def warn(message):
    """Reports a gap."""
    get = message.headers.get
    if get("ce-type") == "dev.kubebridge.informer.gap":
        print("gap", json.loads(message.data)["reason"], get("ce-informer"), get("ce-resource"),
              get("ce-time"), file=sys.stderr)


async def read(position_in, store):
    nc = await nats.connect("nats://127.0.0.1:4222")
    js = nc.jetstream()
    info = await js.stream_info("K8S")
    stream, end = info.created.isoformat(), info.state.last_seq  # a recreated one is another
    position = position_in(stream)
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, opt_start_seq=position + 1,
                            deliver_policy=DeliverPolicy.BY_START_SEQUENCE)
    consumer = await js.pull_subscribe("k8s.>", stream="K8S", config=config)
    while position < end:
        messages = await consumer.fetch(1000, timeout=30)
        # Who made a change ("attributed") is no version of its object.
        events = [m for m in messages if "ce-id" in (m.headers or {})
                  and m.headers.get("ce-type") != "dev.kubebridge.resource.attributed"]
        store([line(m, stream) for m in events])
        for event in events:
            warn(event)
        position = messages[-1].metadata.sequence.stream
    await nc.close()


def copy(position_in, store):
    asyncio.run(read(position_in, store))
