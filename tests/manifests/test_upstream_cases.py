"""Every manifest that upstream's users have is accepted as it is; templates are filled in first."""

import re
from pathlib import Path

import pytest

from kaiwo.manifests import describe_workload, parse_all
from kaiwo.model.errors import ConfigError
from tests.conftest import find_shared_dir

READ = re.compile(r"^kind: (KaiwoJob|Job|Pod|KaiwoQueue)$", re.MULTILINE)
CASES = find_shared_dir() / "cases" / "kaiwo"
# A pattern that an operator's pod must match, not a manifest: it has no name.
NOT_MANIFESTS = ("upstream-expected/test/chainsaw/tests/standard/labels/annotations/pod.yaml",)
# It asks for 500 whole GPUs, by a fraction and by memory at once: the sentence is the feature.
REFUSED = ("seeds/003-3-pod.yaml",)
MANIFESTS = [
    path
    for path in sorted(CASES.rglob("*.yaml"))
    if READ.search(path.read_text()) and str(path.relative_to(CASES)) not in (*NOT_MANIFESTS, *REFUSED)
]


def filled_in(path: Path) -> str:
    text = re.sub(r"\(\$node_gpus\)", '"8"', path.read_text())
    return re.sub(r"\(\$[^)]*\)", "96Gi", text)


def test_there_are_cases() -> None:
    assert len(MANIFESTS) >= 55


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(CASES)))
def test_it_is_accepted_unchanged(path: Path) -> None:
    parsed = parse_all(filled_in(path))
    assert len(parsed.submissions) + len(parsed.queues) == len(READ.findall(path.read_text()))
    assert all(describe_workload(workload) for workload, _ in parsed.submissions)


@pytest.mark.parametrize("path", [p for p in MANIFESTS if "($" in p.read_text()], ids=lambda path: path.name)
def test_a_template_is_called_one(path: Path) -> None:
    if "($" in "".join(line for line in path.read_text().splitlines() if not line.startswith("#")):
        with pytest.raises(ConfigError, match="template"):
            parse_all(path.read_text())


def test_the_pod_that_means_half_a_gpu_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"500 whole GPUs, not half of one.*kaiwo.ai/gpu-fraction"):
        parse_all((CASES / REFUSED[0]).read_text())


def test_ray_jobs_are_spread_as_upstream_expects() -> None:
    path = "upstream/test/chainsaw/tests/standard/rayjobs/resource-scheduling/basic-rayjob.yaml"
    ((workload, _),) = parse_all((CASES / path).read_text()).submissions
    (role,) = workload.roles
    assert (role.count, role.request.gpus) == (2, 7)
    assert (role.request.cpu_milli, role.request.memory_mib) == (28_000, 224 * 1024)


@pytest.mark.parametrize("name", ["job-overlapping", "job-non-overlapping"])
def test_resources_are_merged_as_upstream_expects(name: str) -> None:
    folder = "test/chainsaw/tests/resource-requests"
    ((ours, _),) = parse_all((CASES / "upstream" / folder / f"{name}.yaml").read_text()).submissions
    ((theirs, _),) = parse_all((CASES / "upstream-expected" / folder / f"{name}-result.yaml").read_text()).submissions
    assert ours.roles == theirs.roles
