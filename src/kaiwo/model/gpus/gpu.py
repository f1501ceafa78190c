"""A GPU, a share of one and its limits, the grades of isolation between tenants, and rules about who may share a GPU.

Quantities are integers: a whole GPU is 1000 milli, memory is in MiB, so sums are exact.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from kaiwo.model.gpus.gpu_models import GPU_MODELS

WHOLE_MILLI = 1000
_UUID = re.compile(r"(MIG|GPU)-[0-9A-Za-z/-]+$")


class Gpu(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One schedulable device of a node: a whole GPU or one of its partitions."""

    id: str  # unique on its node: a PCI address, or `gpu-3` on a virtual node
    model: str
    memory_mib: int
    healthy: bool = True
    reason: str = ""  # why it is not healthy
    parent: str = ""  # the physical GPU of which it is a partition; empty: it is whole
    profile: str = ""  # of a partition: `CPX+NPS4`, `1g.10gb`
    milli: int = WHOLE_MILLI  # its part of the physical GPU; those of all partitions add up to 1000
    share_grade: str = ""  # the best isolation of a share of it, if its machine reports it
    vendor: str = ""  # if its machine reports it and its model is not in the table
    next_mode: str = ""  # the partition mode that it changes to, as in `profile`; until then it is not healthy
    is_changing: bool = False  # the change has begun; before that, it drains
    failed_s: int = 0  # it is broken since then, so work on it moves away; 0: it is not, whatever else is wrong with it


class Share(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    gpu: str
    milli: int
    mib: int
    round_milli: int = 0  # what its queue pays beyond `milli`: memory rounds down on the device, and up in the charge
    threads_milli: int = 0  # of the multiprocessors that an MPS client may use; 0: as many as its share

    @property
    def charge_milli(self) -> int:
        return self.milli + self.round_milli


def with_uuid(gpu: str, uuid: str) -> str:
    """The id of a whole NVIDIA GPU that can be named only by its UUID."""
    return f"{gpu}-{uuid}"


def without_uuid(device: str) -> str:
    """The id that `with_uuid` was given; any other id stays."""
    return device.partition("-GPU-")[0]


def uuid_of(device: str) -> str:
    """The UUID at the end of a device's id, of a whole GPU or of a MIG device; empty if it has none."""
    found = _UUID.search(device)
    return found[0] if found else ""


def with_health_of(known: Gpu, gpu: Gpu) -> Gpu:
    """The second device with the health of the first, and with the mode change that the first waits for."""
    return replace(
        gpu,
        healthy=known.healthy,
        reason=known.reason,
        next_mode=known.next_mode,
        is_changing=known.is_changing,
        failed_s=known.failed_s,
    )


def vendor_of(gpu: Gpu) -> str:
    known = GPU_MODELS.get(gpu.model)
    return known.vendor if known else gpu.vendor


def are_mixed(gpus: Iterable[Gpu]) -> bool:
    return len({vendor_of(gpu) for gpu in gpus} - {""}) > 1


# Compute-unit masks and MPS have equal rank: they are two vendors' versions of the same guarantee.
GRADE_RANKS: Mapping[str, int] = {
    "partition": 4, "memory-capped": 3, "cu-mask": 2, "mps": 2, "time-slicing": 1, "none": 0,
}  # fmt: skip
MIN_LIMITED_GRADE = "cu-mask"  # from this grade on, a share has its own compute units
DEMANDS_LIMITS, TAKES_TURNS = "demands", "turns"  # how a share treats others on its device: see `Request.beside`
TIME_SLICING = "time-slicing"  # a workload that is alone on the GPU has all of it
MAX_SHARERS = 2  # the most workloads that share one GPU which each of them asked for whole, in shared mode
SHARED_MILLI = WHOLE_MILLI // MAX_SHARERS
SMALL_MILLI = 64  # smaller shares may be too small for a CU mask, depending on the model
SHARE_GRADE_LABEL = "kaiwo.ai/gpu-share-grade"  # the best grade of a share, on nodes without an agent


def is_grade_enough(grade: str, least: str) -> bool:
    return not least or GRADE_RANKS[grade] >= GRADE_RANKS[least]


# A rule lists what must be equal, or says `nobody`. Those of workloads, queues, nodes and the policy add up.
ANYONE, NOBODY = "anyone", "nobody"
EQUALITIES = ("queue", "namespace", "user")
SHARE_WITH = "kaiwo.ai/gpu-share-with"  # an annotation of workloads and a label of nodes
_SEPARATOR = re.compile(r", ?|\.")  # the value of a label can't have a comma

ShareRule = tuple[str, ...]  # in the order of EQUALITIES, or `nobody` alone; empty: anyone


class GpuTenant(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Who uses a share of a GPU, as far as rules in use ask for it. An unknown user is empty, and equal to nobody."""

    share_with: ShareRule = ()  # its own rule, those of its queues and that of the policy together
    queue: str = ""
    namespace: str = ""
    user: str = ""


def outside_tenant(workload: str, own: ShareRule) -> GpuTenant:
    """Work that no queue has: of another scheduler, or whose end was reported before that of its pods."""
    return GpuTenant(own, namespace=workload.partition("/")[0])


def parse_share_rule(text: str) -> ShareRule | None:
    """The rule that a text such as `queue,user` states; None if it is not one."""
    words = _SEPARATOR.split(text)
    if words in ([ANYONE], [NOBODY]):
        return () if words == [ANYONE] else (NOBODY,)
    if any(word not in EQUALITIES for word in words) or len(set(words)) < len(words):
        return None
    return joined_rules([words])


def rule_of_node(labels: dict[str, str]) -> ShareRule:
    """The rule of a node's label; a mistyped one counts as the strictest."""
    text = labels.get(SHARE_WITH)
    if text is None:
        return ()
    rule = parse_share_rule(text)
    return (NOBODY,) if rule is None else rule


def joined_rules(rules: Iterable[Iterable[str]]) -> ShareRule:
    """The rule under which all of these hold."""
    words = {word for rule in rules for word in rule}
    return (NOBODY,) if NOBODY in words else tuple(word for word in EQUALITIES if word in words)


def may_share(one: GpuTenant, other: GpuTenant, node_rule: ShareRule = ()) -> bool:
    """Whether both may use shares of one GPU: the rules of both and that of the node hold."""
    rule = joined_rules((one.share_with, other.share_with, node_rule))
    if NOBODY in rule:
        return False
    return all(getattr(one, key) == getattr(other, key) != "" for key in rule)


def rule_words(rule: ShareRule) -> str:
    """With whom work of this rule shares: `anyone`, `nobody`, `work of the same queue and user`."""
    if not rule or NOBODY in rule:
        return NOBODY if rule else ANYONE
    return f"work of the same {' and '.join((', '.join(rule[:-1]), rule[-1]) if rule[1:] else rule)}"


# Bounds and defaults of one share, set by queues and nodes: the stricter bound holds, the nearest default counts.
# Labels of nodes. One that cannot be read counts as the strictest.
MAX_THREADS = "kaiwo.ai/gpu-max-threads"  # the most threads of a share beyond the share, in percent
DEFAULT_THREADS = "kaiwo.ai/gpu-default-threads"  # of a share by MPS that does not ask for any, in percent
MAX_SHARE_MEMORY = "kaiwo.ai/gpu-max-share-memory"  # of one share on one device: `16Gi`, or a number of MiB

ANY_MIB = 1 << 40  # more than any device has: no bound
_UNIT_MIB = {"": 1, "Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}


class ShareLimits(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What a workload's queue, and those above it, say about each of its shares."""

    max_mib: int = ANY_MIB
    queue: str = ""  # the queue that has this bound
    max_threads_milli: int = 0  # beyond the share itself; 0: no more than the share
    default_threads_milli: int = 0  # of shares that do not ask for any; 0: as the node says, otherwise as the share


NO_LIMITS = ShareLimits()


def most_share_mib(labels: Mapping[str, str]) -> int:
    """The most memory of one share on a device of this node. Where the label cannot be read, there are no shares."""
    if (written := labels.get(MAX_SHARE_MEMORY)) is None:
        return ANY_MIB
    found = re.fullmatch("([0-9]{1,8})(Mi|Gi|Ti)?", written)
    return min(ANY_MIB, int(found[1]) * _UNIT_MIB[found[2] or ""]) if found else 0


def threads_on_node(threads_milli: int, share_milli: int, labels: Mapping[str, str]) -> int:
    """The threads that a share gets there. A label that cannot be read allows no more than the share."""
    if (written := labels.get(MAX_THREADS)) is None:
        return threads_milli
    return min(threads_milli, max(share_milli, _read_percent(written)))


def default_threads(limits: ShareLimits, share_milli: int, labels: Mapping[str, str]) -> int:
    """The threads of a share by MPS that asks for none; 0: nobody says, and it gets as many as its share."""
    threads_milli = limits.default_threads_milli or _read_percent(labels.get(DEFAULT_THREADS, ""))
    return threads_on_node(min(threads_milli, max(share_milli, limits.max_threads_milli)), share_milli, labels)


def _read_percent(written: str) -> int:
    """In milli; 0 if it is not a percentage."""
    return 10 * int(written) if re.fullmatch("[0-9]{1,3}", written) and int(written) <= 100 else 0
