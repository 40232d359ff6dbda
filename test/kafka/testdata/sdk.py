"""Reads messages from lines of JSON with the CloudEvents SDK, and prints the attributes of each."""

import base64
import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.v1.http import from_http

older = sys.argv[1] == "v1"
for line in sys.stdin:
    message = json.loads(line)
    headers, body = message["headers"], base64.b64decode(message["body"])
    if message["key"]:
        headers = {name: value.encode() for name, value in headers.items()}
        event = from_kafka_event(KafkaMessage(headers, message["key"].encode(), body))
    elif older:
        event = from_http(headers, body)
    else:
        event = from_http_event(HTTPMessage(headers, body))
    attributes = event.get_attributes()
    print(json.dumps({name: str(attributes[name]) for name in attributes}))
