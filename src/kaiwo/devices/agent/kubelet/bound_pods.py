"""List the pods that are bound to this node, from the API server, and decode their annotations.

There is no watch: pods are listed when the kubelet asks for devices.
"""

from collections.abc import Iterable
from typing import Protocol
from urllib.parse import quote

import msgspec

from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Share
from kaiwo.model.grant_signature import SIGNATURE_ANNOTATION

GRANTED_DEVICES = "kaiwo.ai/granted-devices"
ISOLATION = "kaiwo.ai/gpu-isolation"
MIN_GRADE = "kaiwo.ai/gpu-isolation-grade"
SHARING = "kaiwo.ai/gpu-sharing"  # of whole GPUs: others may share them
SIZES = ("kaiwo.ai/gpu-fraction", "kaiwo.ai/gpu-memory")  # of a share; a pod with one of them asks for no whole GPU
SHARE_RESOURCE = "kaiwo.ai/gpu-share"


def encode_granted(shares: tuple[Share, ...]) -> str:
    return msgspec.json.encode(shares).decode()


def decode_granted(text: str) -> tuple[Share, ...]:
    """Decode the annotation; ConfigError if it is invalid."""
    try:
        shares = msgspec.json.decode(text, type=tuple[Share, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{GRANTED_DEVICES} is invalid: {error}", GRANTED_DEVICES) from error
    for share in shares:
        # A share with little memory has 0 milli.
        amounts = (share.milli, share.threads_milli)
        if not share.gpu or not all(0 <= milli <= WHOLE_MILLI for milli in amounts) or share.mib < 0:
            raise ConfigError(f"{GRANTED_DEVICES} contains an impossible share: {share}", GRANTED_DEVICES)
    return shares


OURS, UPSTREAMS = "kaiwo.ai/", "kaiwo.silogen.ai/"


class Container(msgspec.Struct, frozen=True):
    name: str
    devices: dict[str, int] = {}
    is_init: bool = False  # it ends before later containers start; false for a sidecar


class BoundPod(msgspec.Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    assigned: str = ""  # the scheduler's annotation
    signature: str = ""  # its signature
    scheduler: str = ""
    refusal: str = ""  # why its annotation is not honoured
    isolation: str = ""
    least_grade: str = ""
    bound: str = ""  # time in seconds; sorts as text
    created: str = ""
    is_over: bool = False
    is_leaving: bool = False  # it is being deleted
    containers: tuple[Container, ...] = ()  # in the order in which the kubelet starts them


def unfinished_uids(pods: Iterable[BoundPod]) -> set[str]:
    return {pod.uid for pod in pods if not pod.is_over}


class PodLister(Protocol):
    def bound(self, is_fresh: bool = False) -> list[BoundPod]:
        """All pods of the node; ClusterError without an answer. `is_fresh`: not from a cache that may lag behind."""
        ...


class _Resources(msgspec.Struct):
    limits: dict[str, str | int] = {}


class _Container(msgspec.Struct):
    name: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart: str | None = msgspec.field(default=None, name="restartPolicy")


class _Spec(msgspec.Struct):
    scheduler: str = msgspec.field(default="", name="schedulerName")
    containers: list[_Container] = []
    init: list[_Container] = msgspec.field(default_factory=list, name="initContainers")


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = {}
    created: str = msgspec.field(default="", name="creationTimestamp")
    deleted: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    since: str | None = msgspec.field(default="", name="lastTransitionTime")


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Pod] = []


class ApiPodLister:
    def __init__(self, api: KubernetesApi, node: str) -> None:
        self._api = api
        self._path = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}')}"

    def bound(self, is_fresh: bool = False) -> list[BoundPod]:
        data = self._api.call("GET", self._path + ("" if is_fresh else "&resourceVersion=0"))
        try:
            return [_bound(pod) for pod in msgspec.json.decode(data, type=_List).items]
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the Kubernetes API returned an invalid list of pods: {error}") from error


def _bound(pod: _Pod) -> BoundPod:
    notes = pod.metadata.annotations
    since = [one.since or "" for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "True"]
    return BoundPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        assigned=notes.get(GRANTED_DEVICES, ""),
        signature=notes.get(SIGNATURE_ANNOTATION, ""),
        scheduler=pod.spec.scheduler,
        isolation=_annotation(notes, ISOLATION) or _isolation_of_shared(notes),
        least_grade=_annotation(notes, MIN_GRADE),
        created=pod.metadata.created,
        bound=(since or [pod.metadata.created])[0],
        is_over=pod.status.phase in ("Succeeded", "Failed"),
        is_leaving=bool(pod.metadata.deleted),
        containers=(
            *(_container(one, one.restart != "Always") for one in pod.spec.init),
            *(_container(one, False) for one in pod.spec.containers),
        ),
    )


def _annotation(notes: dict[str, str], name: str) -> str:
    """The annotation by our name, or else by upstream's."""
    return notes.get(name) or notes.get(name.replace(OURS, UPSTREAMS, 1), "")


def _isolation_of_shared(notes: dict[str, str]) -> str:
    """The isolation of a pod that asks for none: shared whole GPUs are time-sliced, fractions get the best there is."""
    is_whole = not any(_annotation(notes, size) for size in SIZES)
    return "time-slicing" if is_whole and _annotation(notes, SHARING) == "true" else ""


def _container(container: _Container, is_init: bool) -> Container:
    limits = {name: int(text) for name, text in container.resources.limits.items() if str(text).isdecimal()}
    return Container(container.name, limits, is_init)
