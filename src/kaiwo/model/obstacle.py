"""Why a workload waits. The codes are API: never renamed, never reused."""

import enum

import msgspec


class Reason(enum.StrEnum):
    """One kind of obstacle."""

    HELD = "held"
    DEPENDENCY = "waits-for-workload"
    DEPENDENCY_FAILED = "dependency-failed"
    NOT_BEFORE = "not-before"
    NO_QUEUE = "no-such-queue"
    QUEUE_NOT_LEAF = "queue-has-children"
    QUEUE_LIMIT = "queue-limit"
    QUEUE_QUOTA = "queue-quota"
    NO_NODES = "no-nodes"
    NODE_NOT_READY = "node-not-ready"
    NODE_CORDONED = "node-cordoned"
    NODE_RULES = "node-rules"
    NODE_TAINTED = "node-tainted"
    NODE_AVOIDED = "node-avoided"
    PODS_NOT_NEAR = "no-required-pods-near"
    PODS_TOO_NEAR = "other-pods-too-near"
    PODS_UNEVEN = "pods-spread-unevenly"
    PORT_TAKEN = "host-port-taken"
    GPU_MODEL = "no-such-gpu-model"
    GPU_UNHEALTHY = "gpu-unhealthy"
    GPU_ISOLATION = "gpu-isolation-too-weak"
    PARTITION_MODE = "needs-another-partition-mode"
    NOT_ENOUGH_GPUS = "not-enough-gpus"  # no node has that many, even when empty
    NOT_ENOUGH_GPU_MEMORY = "not-enough-gpu-memory"  # no device is that large
    NOT_ENOUGH_FREE_GPUS = "not-enough-free-gpus"
    NOT_ENOUGH_FREE_GPU_SHARE = "not-enough-free-gpu-share"
    NOT_ENOUGH_FREE_GPU_MEMORY = "not-enough-free-gpu-memory"
    NOT_ENOUGH_CPU = "not-enough-cpu"
    NOT_ENOUGH_MEMORY = "not-enough-memory"
    NOT_ENOUGH_PODS = "not-enough-pod-slots"
    NOT_ENOUGH_EXTENDED = "not-enough-extended-resource"
    GANG = "gang-does-not-fit"
    OVER_FAIR_SHARE = "queue-at-fair-share"  # so it may take nothing from others
    NOT_ENOUGH_RECLAIMABLE = "not-enough-reclaimable"  # proved: whatever went of others is too little
    NO_WAY_TO_RECLAIM = "no-way-to-reclaim"  # undecided: sums and nodes would do; no search found whom to stop
    PATIENT = "waits-out-its-delay"  # it asked not to have others stopped before then
    HELD_OFF = "waits-out-hold-off"  # it had to go for others lately, and stops nobody until then
    NO_WAY_TO_PREEMPT = "no-way-to-preempt"  # less important work runs in its queue, and something keeps it
    RESERVED = "reserved-for-others"
    RESERVATION = "reservation-not-usable"  # the one it names is not there, not active, or not for it
    EXPIRED = "allocation-expired"
    NOMINATED = "space-kept-for-others"
    PROMISED = "planned-start-of-others"  # it would fit, and would not be gone in time
    RELEASING = "waits-for-release"
    PLUGIN = "refused-by-plugin"
    NOT_TRIED = "not-tried-yet"  # the cycle's step budget ran out first


class Obstacle(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One thing that keeps a workload waiting, in numbers; `explain` makes the sentence and the remedy."""

    reason: Reason
    need: int = 0
    have: int = 0
    unit: str = ""  # milli-gpu | gpus | devices | mib | milli-cpu | pods | nodes | s
    subject: str = ""  # the queue, role, node, workload or resource it is about
    detail: str = ""
