"""Read one object from the API by kind and name."""

from typing import Any

import click
import msgspec

from kaiwo.api.views.answers import Page
from kaiwo.api.views.cluster import StatusView
from kaiwo.api.views.nodes import GpuView
from kaiwo.cli.client.api_client import ApiClient, object_path, workload_path
from kaiwo.cli.lists.object_kinds import CYCLES, GPUS, NODES, QUEUES, RESERVATIONS, WORKLOADS, ObjectKind, find_kind
from kaiwo.cli.name_completion import (
    complete_gpu,
    complete_node,
    complete_queue,
    complete_reservation,
    complete_workload,
)
from kaiwo.cli.output.formatting import full_name
from kaiwo.model.errors import ConfigError, NotFoundError

WITH_MANIFESTS = (WORKLOADS, QUEUES, RESERVATIONS)
_COMPLETIONS = {
    WORKLOADS: complete_workload,
    NODES: complete_node,
    GPUS: complete_gpu,
    QUEUES: complete_queue,
    RESERVATIONS: complete_reservation,
}


def read_object(server: ApiClient, kind: ObjectKind, name: str, submission: int | None = None) -> bytes:
    """`submission`: only of workloads; None: the latest."""
    if kind is WORKLOADS:
        query = {} if submission is None else {"submission": submission}
        return server.get(workload_path(full_name(name)), query)
    if kind in (NODES, QUEUES, RESERVATIONS):
        return server.get(object_path(kind.plural, name))
    if kind is GPUS:
        return _read_gpu(server, name)
    return _read_cycle(server, name)


def read_manifest(server: ApiClient, kind: ObjectKind, name: str) -> Any:
    """The manifest of an object, which can be applied again."""
    path = workload_path(full_name(name)) if kind is WORKLOADS else object_path(kind.plural, name)
    return server.decode(server.get(f"{path}/manifest"), dict[str, Any])


def _read_gpu(server: ApiClient, name: str) -> bytes:
    node, slash, gpu_id = name.partition("/")
    if not slash:
        raise ConfigError(f"'{name}' is not the name of a GPU; write it like node/gpu-0 (list: kaiwo gpus -o name)")
    page = server.decode(server.get("/gpus", {"node": node, "limit": 1000}), Page[GpuView])
    for gpu in page.items:
        if gpu.id == gpu_id:
            return msgspec.json.encode(gpu)
    server.get(object_path("nodes", node))  # an unknown one is an error, with the nearest name
    raise NotFoundError(f"there is no GPU '{gpu_id}' on node '{node}'; list its GPUs with: kaiwo gpus --node {node}")


def _read_cycle(server: ApiClient, name: str) -> bytes:
    if not name.isdecimal():
        raise ConfigError(f"'{name}' is not a cycle number; list cycles with: kaiwo get cycles")
    query: dict[str, Any] = {"limit": CYCLES.page_limit}
    while True:
        page = server.decode(server.get("/cycles", query), Page[dict[str, Any]])
        for cycle in page.items:
            if cycle.get("number") == int(name):
                return msgspec.json.encode(cycle)
        if not page.next:
            raise NotFoundError(f"there is no cycle {name} in the journal; list cycles with: kaiwo get cycles")
        query["after"] = page.next


def server_time(server: ApiClient) -> int:
    """The cluster's time, which may run faster than ours."""
    return server.decode(server.get("/status"), StatusView).cluster.now_s


def complete_object(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of the kind that was typed before."""
    kind = find_kind(ctx.params.get("kind") or "")
    complete = _COMPLETIONS.get(kind) if kind else None
    return complete(ctx, parameter, incomplete) if complete else []
