"""What somebody asks of the GPUs, as it was written, and what the wishes are called there.

One pod's fields and annotations make a GpuWish; `gpu_requests.settle` makes a request of it.
"""

from typing import NamedTuple


class GpuWords(NamedTuple):
    """What the wishes are called where they were written."""

    owner: str
    whole: str
    fraction: str
    memory: str
    devices: str
    models: str
    sharing: str = "gpuSharing"
    isolation: str = "gpuIsolation"
    whole_may_stand_beside: bool = False  # a whole GPU beside a fraction only names the vendor
    partition: str = "gpuPartition"
    grade: str = "gpuIsolationGrade"
    kubelet_counts_whole: bool = False  # on Kubernetes nobody else comes to what it handed out whole


class GpuWish(NamedTuple):
    """What was written; None: nothing."""

    whole: int = 0
    fraction_milli: int | None = None
    memory_mib: int | None = None
    devices: int | None = None
    models: tuple[str, ...] = ()
    vendor: str = ""
    sharing: bool | None = None
    isolation: str = ""
    partition: str = ""
    least_grade: str = ""
