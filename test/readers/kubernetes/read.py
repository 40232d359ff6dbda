"""Reads a cluster with the official Python client, and prints what it has as one line of JSON.

Arguments: a kubeconfig, a namespace, the group of the custom resource things."""

import json
import sys

from kubernetes import client, config, dynamic, watch


def main(kubeconfig, namespace, group):
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    pods = core.list_namespaced_pod(namespace)
    page = core.list_namespaced_pod(namespace, limit=2)
    second = core.list_namespaced_pod(namespace, limit=2, _continue=page.metadata._continue)
    secrets = core.list_namespaced_secret(namespace)
    things = client.CustomObjectsApi().list_namespaced_custom_object(group, "v1", namespace, "things")
    deployments = dynamic.DynamicClient(client.ApiClient()).resources.get(
        api_version="apps/v1", kind="Deployment").get(namespace=namespace)
    watched = [
        (event["type"], event["object"].metadata.name)
        for event in watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=1)
    ]
    print(json.dumps({
        "pods": [(p.metadata.name, p.status.phase) for p in pods.items],
        "pages": [p.metadata.name for p in page.items + second.items],
        "secrets": [(s.metadata.name, s.data) for s in secrets.items],
        "things": [(t["metadata"]["name"], t["spec"]["size"]) for t in things["items"]],
        "deployments": [(d.metadata.name, d.spec.replicas) for d in deployments.items],
        "watched": watched,
    }))


main(*sys.argv[1:])
