"""A change of a workload reads like a submission, and changes nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.manifests import ManifestDefaults, parse
from kaiwo.manifests.workload_change import apply_change, raised_fields
from kaiwo.model.errors import ConfigError
from kaiwo.model.workload import Workload

SUBMITTED_S, NOW_S = 1_000, 5_000


def workload(**fields: Any) -> Workload:
    ((made, _),) = parse({"name": "train", **fields}, ManifestDefaults(submitted_s=SUBMITTED_S, user="ada")).submissions
    return made


def changed(before: Workload, **fields: Any) -> Workload:
    return apply_change(fields, before, NOW_S, [])


sizes = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 8)}),
    st.fixed_dictionaries({"gpuFraction": st.sampled_from(["0.1", "0.25", "0.5"])}),
    st.fixed_dictionaries({"gpuMemory": st.sampled_from([4000, "16Gi"]), "gpuDevices": st.integers(1, 4)}),
)
forms = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(-5, 50),
        "queue": st.sampled_from(["default", "lab"]),
        "time": st.sampled_from(["10m", "2h"]),
        "estimate": st.sampled_from(["5m", "1h"]),
        "pods": st.integers(1, 9),
        "cpu": st.sampled_from(["1", "500m", 4]),
        "memory": st.sampled_from(["1Gi", "16Gi"]),
        "preemptible": st.booleans(),
        "reservation": st.just("night"),
        "requiredLevel": st.just("leaf"),
    },
)


@given(forms, sizes, forms, sizes)
def test_a_changed_workload_is_what_it_would_have_been_if_submitted_so(
    first: dict[str, Any], first_size: dict[str, Any], second: dict[str, Any], second_size: dict[str, Any]
) -> None:
    before = workload(**first, **first_size)
    after = changed(before, **second, **second_size)
    is_whole = "gpus" in first_size or "gpus" in second_size  # otherwise a fraction and an amount of memory both count
    assert after == workload(**{**first, **second}, **(second_size if is_whole else {**first_size, **second_size}))


@given(forms, sizes)
def test_a_change_to_what_it_is_changes_nothing(form: dict[str, Any], size: dict[str, Any]) -> None:
    before = workload(**form, **size)
    assert changed(before, **form, **size) == before
    assert raised_fields(before, before) == []


def test_null_clears_a_setting() -> None:
    before = workload(time="2h", estimate="1h", reservation="night", preemptible=False, pods=4, minPods=2)
    after = changed(before, time=None, estimate=None, reservation=None, preemptible=None, minPods=None)
    assert after == workload(pods=4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"priority": None}, "priority cannot be cleared"),
        ({"queue": None}, "queue cannot be cleared"),
        ({"gpus": None}, "gpus cannot be cleared"),
        ({"priority": "high"}, "priority"),
        ({"hold": "yes"}, "write true or false"),
        ({"gpus": 2, "gpuFraction": "0.5"}, "give one of the two"),
        ({"pods": 0}, "pods"),
        ({"minPods": 5}, "minPods is 5 and pods is 1"),
        ({"name": "other"}, "name is not a known field"),
        ({"user": "bob"}, "user is not a known field"),
        ({"command": ["rm"]}, "command is not a known field"),
        ({"priorty": 5}, "did you mean priority"),
        ({"topology": "fabric"}, "without a level"),
        ({"segmentSize": 4}, "segmentLevel"),
        ({"time": "2 lightyears"}, "not a duration"),
    ],
)
def test_what_cannot_be_changed_is_said(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        changed(workload(), **fields)


def test_work_with_several_kinds_of_pods_keeps_its_size() -> None:
    before = workload(subGroups=[{"name": "a", "pods": 2}, {"name": "b", "pods": 1}])
    with pytest.raises(ConfigError, match="several kinds of pods"):
        changed(before, gpus=2)
    assert changed(before, priority=3) == replace(before, priority=3)


@pytest.mark.parametrize(
    ("before", "change", "raised"),
    [
        ({}, {"priority": 1}, ["priority"]),
        ({"priority": 5}, {"priority": 4}, []),
        ({"time": "1h"}, {"time": "2h"}, ["time"]),
        ({"time": "1h"}, {"time": None}, ["time"]),
        ({"time": "1h"}, {"time": "30m"}, []),
        ({}, {"time": "1h"}, []),
        ({"gpus": 4}, {"gpus": 8}, ["size"]),
        ({"gpus": 4}, {"gpus": 2}, []),
        ({"gpus": 4}, {"gpus": 2, "pods": 2}, ["size"]),  # as many GPUs, but two pods with their CPUs
        ({"gpus": 4, "pods": 2}, {"gpus": 8, "pods": 1}, []),
        ({"gpuMemory": 4000}, {"gpuMemory": 8000}, ["size"]),
        ({"gpuFraction": "0.5"}, {"gpuFraction": "0.6"}, ["size"]),
        ({}, {"cpu": 64}, ["size"]),
        ({}, {"memory": "64Gi"}, ["size"]),
        ({}, {"preemptible": False}, ["preemptible"]),
        ({"preemptible": False}, {"preemptible": True}, []),
        ({}, {"restartCost": "1d"}, ["restartCost"]),
        ({"expires": "1h"}, {"expires": None}, ["expires"]),
        ({}, {"hold": True}, []),
    ],
)
def test_what_a_change_raises(before: dict[str, Any], change: dict[str, Any], raised: list[str]) -> None:
    had = workload(**{"priority": 0, **before})
    assert raised_fields(had, changed(had, **change)) == raised
