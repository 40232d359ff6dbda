"""Makes the hub's stream, or changes it: its sources are the streams of the clusters."""
import asyncio
import sys

import nats
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.errors import NotFoundError


async def main():
    nc = await nats.connect("nats://127.0.0.1:4223")
    js = nc.jetstream()
    fleet = StreamConfig(name="FLEET", sources=[
        StreamSource(name="K8S", external=ExternalStream(api=f"$JS.{cluster}.API"))
        for cluster in sys.argv[1:]])
    try:
        await js.stream_info("FLEET")
        await js.update_stream(fleet)
    except NotFoundError:
        await js.add_stream(fleet)
    await nc.close()


asyncio.run(main())
