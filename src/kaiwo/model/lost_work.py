"""What is thrown away when running work is stopped.

In:    a workload and the pods of it that would go.   Out: GPU-seconds.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.workload import Pod, Workload


def lost_s(workload: Workload, since_s: int, now_s: int) -> int:
    """Of a pod that runs since then: what it did after the last checkpoint, and what it takes to be there again."""
    return max(0, now_s - max(since_s, workload.checkpoint_s)) + workload.restart_s


def lost_gpu_s(workload: Workload, pods: Iterable[Pod], now_s: int) -> int:
    """The same of several, by the GPUs that they hold."""
    return (
        sum(lost_s(workload, pod.since_s, now_s) * share.milli for pod in pods for share in pod.devices) // WHOLE_MILLI
    )


def has_only_saved(before: Workload, after: Workload) -> bool:
    """Nothing about it is different but when it last saved its work."""
    saved_s = after.checkpoint_s
    return before.checkpoint_s != saved_s and replace(before, checkpoint_s=saved_s) == after
