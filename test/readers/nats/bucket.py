# Prints the keys of a key-value bucket that exist, each as a line of JSON with its value in base64.
#
#   python bucket.py <url> <bucket>
#
# The keys come from the stream's own subjects: keys() of nats.py may find none or only some when
# messages arrive later than it expects (https://github.com/nats-io/nats.py/issues/842).
import asyncio
import base64
import json
import sys

import nats
from nats.js.errors import KeyNotFoundError


async def main(url, bucket):
    nc = await nats.connect(url)
    js = nc.jetstream()
    kv = await js.key_value(bucket)
    prefix = f"$KV.{bucket}."
    stream = await js.stream_info(f"KV_{bucket}", subjects_filter=prefix + ">")
    for subject in stream.state.subjects or {}:
        key = subject.removeprefix(prefix)
        try:
            entry = await kv.get(key)
        except KeyNotFoundError:
            continue
        print(json.dumps({"key": key, "value": base64.b64encode(entry.value).decode()}))
    await nc.close()


asyncio.run(main(*sys.argv[1:]))
