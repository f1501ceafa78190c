"""Read Kaiwo's own objects (queues, reservations, topologies, partitioning plans) with the code that reads files."""

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.quantities import read_time_s
from kaiwo.clusters.kubernetes.decode.wire_objects import NOTHING, Meta, Wire
from kaiwo.manifests import Parsed, parse
from kaiwo.manifests.kinds.object_metadata import NO_DEFAULTS, ManifestObject
from kaiwo.manifests.kinds.topology import KIND as TOPOLOGY_KIND
from kaiwo.manifests.kinds.topology import read_topology
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.model.network.topology import Topology
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import PhysicalDevice, Reservation

QUEUES = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"
RESERVATIONS = "/apis/kaiwo.ai/v1alpha2/kaiworeservations"
TOPOLOGIES = "/apis/kaiwo.ai/v1alpha2/kaiwotopologies"
PARTITIONING_PLANS = "/apis/infrastructure.silogen.ai/v1alpha1/partitioningplans"


class KaiwoObject(Wire):
    """An object of one of Kaiwo's own kinds. Its spec is read by the same code as a file's."""

    metadata: Meta
    spec: dict[str, Any] | None = None


class QueueObject(KaiwoObject):
    status: Raw = NOTHING  # see `queue_history`


class ReservationObject(KaiwoObject):
    status: dict[str, Any] | None = None


class PlanObject(KaiwoObject):
    """A PartitioningPlan."""


class TopologyObject(KaiwoObject):
    status: dict[str, Any] | None = None


def read_queue(item: QueueObject) -> Queue | str:
    parsed = _parse("kaiwo.ai/v1alpha2", "KaiwoQueue", item)
    if isinstance(parsed, str):
        return parsed
    return replace(parsed.queues[0], created_s=read_time_s(item.metadata.creation_timestamp))


def read_reservation(item: ReservationObject) -> Reservation | str:
    """One reservation, with the devices in its status."""
    parsed = _parse("kaiwo.ai/v1alpha2", "KaiwoReservation", item)
    if isinstance(parsed, str):
        return parsed
    found, created_s = parsed.reservations[0], read_time_s(item.metadata.creation_timestamp)
    return replace(found, created_s=created_s, picked=_picked(item.status) if found.gpus else ())


def read_topology_object(item: TopologyObject) -> Topology | str:
    document = {"kind": TOPOLOGY_KIND, "metadata": {"name": item.metadata.name}, "spec": item.spec or {}}
    try:
        return read_topology(ManifestObject(document, "", NO_DEFAULTS, []))
    except ConfigError as error:
        return str(error)


def read_partitioning_plan(item: PlanObject) -> PartitioningPlan | str:
    parsed = _parse("infrastructure.silogen.ai/v1alpha1", "PartitioningPlan", item)
    return parsed if isinstance(parsed, str) else parsed.partitioning[0]


def _parse(api_version: str, kind: str, item: KaiwoObject) -> Parsed | str:
    """The parsed spec, or the mistake in it, which an older schema allowed."""
    metadata = {"name": item.metadata.name}
    try:
        return parse({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": item.spec or {}})
    except ConfigError as error:
        return str(error)


def _picked(status: dict[str, Any] | None) -> tuple[PhysicalDevice, ...]:
    """Entries that cannot be read are left out: their devices are picked again."""
    found = (status or {}).get("devices")
    items = found if isinstance(found, list) else []
    pairs = [(item.get("node"), item.get("gpu")) for item in items if isinstance(item, dict)]
    return tuple(PhysicalDevice(node, gpu) for node, gpu in pairs if isinstance(node, str) and isinstance(gpu, str))
