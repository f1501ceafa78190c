"""Partitions are asked for by an annotation, by a field of the short form, and by upstream's `partitioned`."""

from typing import Any

import pytest

from kaiwo.manifests.parse import parse
from kaiwo.manifests.workload_summary import describe_workload
from kaiwo.model.errors import ConfigError
from kaiwo.model.request import Request


def short(**fields: Any) -> Request:
    ((workload, _),) = parse({"name": "w", **fields}).submissions
    return workload.roles[0].request


def pod(gpus: int = 0, **annotations: str) -> Request:
    limits = {"amd.com/gpu": str(gpus)} if gpus else {}
    written = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "annotations": {f"kaiwo.ai/{k.replace('_', '-')}": v for k, v in annotations.items()},
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }
    ((workload, _),) = parse(written).submissions
    return workload.roles[0].request


@pytest.mark.parametrize(
    ("written", "read"),
    [("CPX", "CPX"), ("cpx+nps4", "CPX+NPS4"), ("any", "any"), ("TPX", "TPX"), ("1g.10gb", "1g.10gb")],
)
def test_a_partition_is_named_by_its_mode(written: str, read: str) -> None:
    assert (short(gpuPartition=written).partition, short(gpuPartition=written).gpus) == (read, 1)
    assert (pod(2, gpu_partition=written).partition, pod(2, gpu_partition=written).gpus) == (read, 2)
    assert short(gpus=3, gpuPartition=written).is_partition


@pytest.mark.parametrize("written", ["SPX", "CPX+NPS8", "XPX", "", "NPS4", "DPX+NPS4"])
def test_what_no_gpu_can_be_cut_into_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="not a partition mode of a GPU; write CPX"):
        short(gpuPartition=written)


def test_a_share_of_a_partition_is_a_contradiction() -> None:
    with pytest.raises(ConfigError, match="gpuPartition asks for partitions, which are taken whole, and gpuFraction"):
        short(gpuPartition="CPX", gpuFraction="0.5")
    with pytest.raises(ConfigError, match=r"kaiwo.ai/gpu-partition asks for .* kaiwo.ai/gpu-memory"):
        pod(gpu_partition="CPX", gpu_memory="4000")


def test_upstreams_partitioned_is_any_partition_and_beside_memory_it_is_said_to_be_unused() -> None:
    def job(**resources: Any) -> Any:
        spec = {"image": "i", "entrypoint": "true", "gpuResources": resources}
        written = {
            "apiVersion": "kaiwo.silogen.ai/v1alpha1",
            "kind": "KaiwoJob",
            "metadata": {"name": "j"},
            "spec": spec,
        }
        return parse(written)

    parsed = job(count=2, partitioned=True)
    assert parsed.submissions[0][0].roles[0].request.partition == "any"
    assert describe_workload(parsed.submissions[0][0]) == "2 partitions"
    assert job(count=1, partitioned=False).submissions[0][0].roles[0].request.is_whole
    both = job(totalVram="96Gi", partitioned=True)
    assert both.submissions[0][0].roles[0].request.is_memory
    assert any("partitioned is not used with totalVram" in warning for warning in both.warnings)


def test_what_is_wanted_is_said_in_words() -> None:
    ((workload, _),) = parse({"name": "w", "gpus": 2, "gpuPartition": "CPX"}).submissions
    assert describe_workload(workload) == "2 CPX partitions"
