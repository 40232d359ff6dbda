# Prints the keys of a key-value bucket that exist, each as a line of JSON with its value in base64, as any user of nats.py reads them.
#
#   python bucket.py <url> <bucket>
import asyncio
import base64
import json
import sys

import nats


async def main(url, bucket):
    nc = await nats.connect(url)
    kv = await nc.jetstream().key_value(bucket)
    for key in await kv.keys():
        entry = await kv.get(key)
        print(json.dumps({"key": key, "value": base64.b64encode(entry.value).decode()}))
    await nc.close()


asyncio.run(main(*sys.argv[1:]))
