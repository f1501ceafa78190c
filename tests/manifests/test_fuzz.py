"""Whatever comes in, out comes a Parsed or a ConfigError, and nothing else."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.manifests import SUBMISSION_FORM, Parsed, describe_role, describe_workload, parse, parse_all, read_json
from kaiwo.manifests.short_form.submission_form import FORM_FIELDS
from kaiwo.manifests.text.read_documents import read_documents
from kaiwo.model.errors import ConfigError
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program
from tests.conftest import ROOT
from tests.manifests.texts import job, kaiwojob, pod, queue

KEYS = """
    metadata spec template containers initContainers resources requests limits amd.com/gpu nvidia.com/gpu annotations
    kaiwo.ai/gpu-fraction kaiwo.ai/gpu-memory kaiwo.ai/gpu-devices kaiwo.ai/gang kaiwo.ai/gpu-isolation job replicas
    parallelism completions items affinity nodeAffinity quota limit fairness gpuResources totalVram gpusPerReplica ray
    gpuVendor entrypoint value valueFrom
"""
TEXTS = """
    0.5 1.5 500 16Gi -1 true false mps 2h 0-9 amd nvidia Pod Job KaiwoJob KaiwoQueue Workload List v1 batch/v1
    kaiwo.ai/v1alpha2 kaiwo.silogen.ai/v1alpha1 t a/b ($x)
"""
WORDS = st.sampled_from([*KEYS.split(), *FORM_FIELDS])
NUMBERS = [0, 1, 8, 500, -1, 2**63, 10**30, 0.5, 1e308, float("inf"), float("nan")]
VALUES = st.sampled_from([*TEXTS.split(), *NUMBERS, "", "\0", "\ud800", True, False, None])
SCALARS = VALUES | st.text(max_size=20) | st.integers() | st.floats() | st.booleans() | st.none()
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=10), inner, max_size=6),
    max_leaves=25,
)
DOCUMENTS = st.dictionaries(WORDS, TREES, max_size=8)
GOOD = st.sampled_from(
    [
        {"name": "t", "gpus": 1},
        {"name": "t", "gpuFraction": "0.5", "gpuDevices": 2},
        pod({"kaiwo.ai/gpu-fraction": "0.5"}, {"limits": {"cpu": "1"}}, nodeSelector={"a": "b"}),
        job(parallelism=2, backoffLimit=1),
        kaiwojob(gpus=4, ray=True, user="a", resources={"requests": {"cpu": "1"}}, job=job()),
        queue(parentQueue="p", resources={"gpu": {"quota": 1, "limit": 2}}, fairness={"policy": "DRF"}),
    ]
)


PAIR = tuple[Workload, Program]


def check(source: Any, reader: Any = parse) -> None:
    began = time.process_time()
    try:
        parsed: Parsed = reader(source)
    except ConfigError as error:
        message = str(error)
    else:
        message = "ok"
        for workload, program in parsed.submissions[:20]:
            again = msgspec.msgpack.decode(msgspec.msgpack.encode((workload, program)), type=PAIR)
            assert again == (workload, program)
            assert describe_workload(workload)
            assert all(describe_role(role) for role in workload.roles)
        msgspec.json.encode(parsed.warnings)
    assert message
    assert "\n" not in message
    assert len(message) < 1500
    assert time.process_time() - began < 20


def changed(document: Any, path: list[int], value: Any) -> Any:
    """The document with one value, found by following the path, replaced."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = keys[path[0] % len(keys)]
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    copy[key] = changed(document[key], path[1:], value)
    return copy


@given(DOCUMENTS)
def test_any_mapping(document: dict[str, Any]) -> None:
    check(document)


@given(TREES)
def test_any_tree(tree: Any) -> None:
    check(tree)


@given(GOOD, st.lists(st.integers(0, 9), max_size=9), TREES)
def test_a_good_document_with_one_thing_changed(document: Any, path: list[int], value: Any) -> None:
    check(changed(document, path, value))


@given(GOOD, WORDS | st.text(max_size=8), TREES)
def test_a_good_document_with_one_thing_added(document: Any, name: str, value: Any) -> None:
    check({**document, name: value})
    if "spec" in document:
        check({**document, "spec": {**document["spec"], name: value}})


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    check(text, parse_all)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check(data, parse_all)
    check(data, lambda text: parse(read_json(text)))


@given(st.text(alphabet="abx01 \n\t:-[]{},&*!|>'\"%#?@~<.", max_size=120))
def test_any_text_that_looks_like_yaml(text: str) -> None:
    check(text, parse_all)


@given(GOOD, st.data())
def test_a_good_text_with_a_hole_or_a_scratch(document: Any, data: st.DataObject) -> None:
    text = yaml.safe_dump(document)
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 10))
    check(text[:at] + data.draw(st.text(max_size=3)) + text[at + length :], parse_all)


@given(DOCUMENTS)
def test_any_mapping_as_yaml(document: dict[str, Any]) -> None:
    check(yaml.safe_dump(document), parse_all)


NASTY = [
    *(None, True, 0, -1, 65, 500, 2**63 - 1, 2**63, 0.5, 1e308, float("nan")),
    *("", " ", "-1", "500m", "16Gi", "X Y", "true", "../..", "\0", "\ud800", "x" * 300, "($x)", "9" * 400, b"x"),
    *([], [None], ["x"], [{}], {}, {"x": None}, {"x": {}}, {1: 2}),
]


def paths(value: Any) -> Iterator[list[int]]:
    yield []
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    for index, child in enumerate(children):
        yield from ([index, *rest] for rest in paths(child))


EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if path.stem != "cluster"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_value_of_every_example_replaced_by_every_nasty_one(path: Path) -> None:
    for document in read_documents(path.read_text()):
        for place in paths(document):
            for value in NASTY:
                check(changed(document, place, value))


FULL_FORM = {
    "apiVersion": "kaiwo.ai/v1alpha2",
    "kind": "Workload",
    "namespace": "a",
    "queue": "q",
    "user": "ada",
    "type": "training",
    "priority": 5,
    "preemptible": False,
    "topology": "fabric",
    "requiredLevel": "spine",
    "preferredLevel": "net.example/leaf",
    "placementStrategy": "balanced",
    "segmentSize": 2,
    "segmentLevel": "leaf",
    "strategy": "worst-fit",
    "bandwidth": "200Gbps",
    "rankOrder": True,
    "rolesLevel": "spine",
    "gpus": 0,
    "gpuFraction": 0.5,
    "gpuMemory": "4Gi",
    "gpuDevices": 2,
    "cpu": 1.5,
    "gpuModels": ["MI300X"],
    "gpuPartition": "CPX",
    "gpuSharing": True,
    "gpuIsolation": "cu-mask",
    "gpuIsolationGrade": "time-slicing",
    "gpuShareWith": "queue,user",
    "gpuThreads": 60,
    "memory": "1Gi",
    "pods": 4,
    "minPods": 1,
    "subGroups": [{"name": "a", "pods": 2, "minPods": 1}, {"name": "b"}, {"name": "c", "parent": "b", "pods": 1}],
    "minSubGroups": 1,
    "nodeSelector": {"a": "b"},
    "command": ["a"],
    "tolerations": [{"operator": "Exists"}],
    "image": "x",
    "env": {"A": "b"},
    "secretEnv": {"B": "2"},
    "workdir": "/",
    "time": 5,
    "estimate": "1h",
    "preemptionDelay": "10m",
    "restartCost": 300,
    "reservation": "night",
    "expires": "2026-01-31T18:00:00Z",
    "retries": 3,
    "array": "0-3",
    "after": ["x"],
    "hold": True,
    "labels": {"a": ""},
    "simulate": "1m",
}
FORMS = st.fixed_dictionaries(
    {"name": st.sampled_from(["t", "train.1"])},
    optional={name: st.just(value) | st.just(value) | VALUES for name, value in FULL_FORM.items()},
)


def test_the_full_form_has_every_field() -> None:
    assert set(FULL_FORM) == set(FORM_FIELDS) - {"name"}


@given(FORMS)
def test_what_is_accepted_fits_the_schema(form: dict[str, Any]) -> None:
    validator = pytest.importorskip("jsonschema_rs").validator_for(msgspec.json.schema(SUBMISSION_FORM))
    try:
        parse(form)
    except ConfigError:
        return
    validator.validate(form)
