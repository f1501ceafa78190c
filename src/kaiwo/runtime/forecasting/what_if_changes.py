"""The changes of a what-if question, and the events that make them in a copy of the cluster.

In:    what a person would change, and the state as it is.   Out: events. Nothing of it reaches the cluster.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.local.cluster_file import virtual_nodes
from kaiwo.decide.cycle import BUILTIN
from kaiwo.manifests import ManifestDefaults, Parsed, parse_all
from kaiwo.manifests.policy_file import read_policy
from kaiwo.manifests.text.field_errors import suggest
from kaiwo.model.errors import ConfigError
from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    NominationGone,
    PodGone,
    QueueChanged,
    ReservationChanged,
    TopologyChanged,
    WorkloadChanged,
)
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.gpus.partition_modes import legal_modes, partition_gpu, read_mode
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Pod
from kaiwo.runtime.loop.divide_replicas import divided
from kaiwo.snapshot.cluster_state import ClusterState

MAX_ADDED, MAX_GPUS = 1_000, 1_000_000


class NodesToAdd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal nodes of eight GPUs."""

    count: int
    model: str = "MI300X"


class WhatIfForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change in a copy of the cluster before it runs forward."""

    quotas: dict[str, int] = {}  # GPUs by queue
    limits: dict[str, int] = {}  # GPUs by queue
    add_nodes: list[NodesToAdd] = []  # of eight GPUs each
    remove_nodes: list[str] = []  # their work waits for another place
    partitions: dict[str, str] = {}  # by node: the mode of its GPUs, such as CPX+NPS4
    policy: str = ""  # a policy file
    manifests: str = ""  # workloads, queues, reservations and topologies, as for `kaiwo apply`


class WhatIfQuestion(NamedTuple):
    """A question whose texts are read."""

    form: WhatIfForm
    manifests: Parsed
    policy: Policy | None  # None: the one in force
    now_s: int


def read_question(form: WhatIfForm, user: str, now_s: int) -> WhatIfQuestion:
    """Read the texts, which may take a second: neither the event loop nor the scheduler's thread should do it."""
    policy = read_policy(form.policy) if form.policy.strip() else None
    return WhatIfQuestion(form, _read_manifests(form.manifests, user, now_s), policy, now_s)


def events_of(question: WhatIfQuestion, state: ClusterState, policy: Policy = DEFAULT_POLICY) -> tuple[Event, ...]:
    """`policy`: the one in force."""
    return (
        *_queue_events(question.form, state),
        *_node_events(question.form, state),
        *_manifest_events(question, state, question.policy or policy),
    )


def _queue_events(form: WhatIfForm, state: ClusterState) -> Iterator[Event]:
    queues: dict[str, Queue] = {}
    for field, amounts in (("quota", form.quotas), ("limit", form.limits)):
        for name, gpus in amounts.items():
            if name not in state.queue_objects:
                raise ConfigError(f"there is no queue '{name[:80]}'{suggest(name, state.queue_objects)}", f"{field}s")
            if not 0 <= gpus <= MAX_GPUS:
                raise ConfigError(f"the {field} of {name} is {gpus} GPUs; write 0 to {MAX_GPUS:,}", f"{field}s")
            queue = queues.get(name) or state.queue_objects[name]
            queues[name] = replace(queue, gpu=replace(queue.gpu, **{field: gpus * WHOLE_MILLI}))
    return iter([QueueChanged(queue) for queue in queues.values()])


def _node_events(form: WhatIfForm, state: ClusterState) -> Iterator[Event]:
    if any(each.count < 1 for each in form.add_nodes):  # sums of positive numbers bound each of them
        raise ConfigError("nodes are added in numbers of 1 or more; to take some away, use remove_nodes", "add_nodes")
    if (added := sum(each.count for each in form.add_nodes)) > MAX_ADDED:
        raise ConfigError(f"{added:,} nodes would be added; at most {MAX_ADDED:,} are possible", "add_nodes")
    for group, each in enumerate(form.add_nodes):
        for node in virtual_nodes(each.count, each.model):
            yield NodeChanged(replace(node, name=f"added-{group}-{node.name}"))
    for name in dict.fromkeys(form.remove_nodes):
        _node(state, name, "remove_nodes")
        yield NodeGone(name)
        for held in state.allocations_on.get(name, {}).values():
            if isinstance(held, Pod):
                yield PodGone(held.workload, held.name)
            else:
                yield NominationGone(held.workload, held.pod)
    for name, profile in form.partitions.items():
        node, mode = _node(state, name, "partitions"), read_mode(profile)
        if any(gpu.profile for gpu in node.gpus):
            raise ConfigError(f"the GPUs of {name} are partitioned already; only whole ones can be asked about")
        parts = [partition_gpu(gpu, mode) for gpu in node.gpus]
        if not all(parts):
            legal = sorted({mode.profile for gpu in node.gpus for mode in legal_modes(gpu.model)})
            raise ConfigError(
                f"the GPUs of {name} have no mode {profile[:40]}; choose from: {', '.join(legal) or 'none'}"
            )
        yield NodeChanged(replace(node, gpus=tuple(part for each in parts for part in each)))


def _node(state: ClusterState, name: str, field: str) -> Node:
    if name not in state.node_objects:
        raise ConfigError(f"there is no node '{name[:80]}'{suggest(name, state.node_objects)}", field)
    return state.node_objects[name]


def _read_manifests(text: str, user: str, now_s: int) -> Parsed:
    if not text.strip():
        return Parsed()
    return parse_all(text, ManifestDefaults(submitted_s=now_s, user=user))


def _manifest_events(question: WhatIfQuestion, state: ClusterState, policy: Policy) -> Iterator[Event]:
    parsed, now_s = question.manifests, question.now_s
    yield from (QueueChanged(queue) for queue in parsed.queues)
    yield from (TopologyChanged(topology) for topology in parsed.topologies)
    yield from (ReservationChanged(reservation) for reservation in parsed.reservations)
    for workload, _ in parsed.submissions:
        if (total := parsed.totals.get(workload.name)) is not None:
            workload = divided(workload, total, state, policy, BUILTIN, now_s)
        yield WorkloadChanged(replace(workload, submitted_s=now_s))
