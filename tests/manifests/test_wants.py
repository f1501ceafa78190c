"""What a workload wants, in the words of the lists."""

import pytest

from kaiwo.manifests.workload_summary import describe_request, describe_role, describe_workload
from kaiwo.model.affinity import NodeRule
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(gpus=1), "1 GPU"),
        (Request(gpus=8, cpu_milli=500), "8 GPUs"),
        (Request(gpus=1, gpu_milli=500), "0.5 GPU"),
        (Request(gpus=2, gpu_milli=125), "2 x 0.125 GPU"),
        (Request(gpus=1, gpu_mib=16000), "16000 MiB of a GPU"),
        (Request(gpus=2, gpu_mib=16000), "2 x 16000 MiB of a GPU"),
        (Request(cpu_milli=4000), "4 CPUs"),
        (Request(cpu_milli=1250), "1.25 CPUs"),
        (Request(memory_mib=512), "512 MiB"),
        (Request(), "nothing"),
    ],
)
def test_one_pod(request_: Request, words: str) -> None:
    assert describe_request(request_) == words


def test_many_pods() -> None:
    gpus = Request(gpus=4)
    assert describe_workload(Workload("a/b", (Role(gpus, count=8),))) == "8 pods x 4 GPUs"
    assert describe_workload(Workload("a/b", (Role(gpus, count=8, minimum=4),))) == "4-8 pods x 4 GPUs"
    two_roles = (Role(Request(cpu_milli=2000), "head"), Role(gpus, "worker", 3))
    assert describe_workload(Workload("a/b", two_roles)) == "2 CPUs + 3 pods x 4 GPUs"


def test_a_role_in_full() -> None:
    request = Request(8000, 65_536, 2, gpu_models=("MI300X",), extended=(("rdma/hca", 1),), node_rules=(NodeRule("a"),))
    assert describe_role(Role(request, count=4, minimum=2)) == (
        "main: 4 pods (at least 2), each 2 GPUs (MI300X), 8 CPUs, 64 GiB memory, 1 rdma/hca on nodes that match 1 rule"
    )
    assert describe_role(Role(Request(gpus=1, gpu_models=VENDOR_MODELS["amd"]))) == "main: 1 pod, 1 GPU (any AMD)"
    turns = Request(gpus=2, gpu_milli=500, gpu_models=("MI300X",), isolation="time-slicing")
    assert describe_role(Role(turns)) == "main: 1 pod, 2 x 0.5 GPU by time-slicing (MI300X)"
    assert describe_role(Role(Request(gpus=1, isolation="mps"))) == "main: 1 pod, 1 GPU"
