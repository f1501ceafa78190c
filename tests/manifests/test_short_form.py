"""Our own short form: what it means, and what it refuses."""

from typing import Any

import msgspec
import pytest

from kaiwo.manifests import SUBMISSION_FORM, ManifestDefaults, describe_workload, parse, parse_all, read_json
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import ConfigError
from kaiwo.model.request import Toleration
from tests.manifests.texts import check_refusal, one, request_of, warnings_of


def test_a_name_is_enough() -> None:
    workload, program = one({"name": "t"})
    assert workload.name == "default/t"
    assert (workload.queue, workload.kind, workload.priority, workload.preemptible) == ("default", "batch", 50, True)
    (role,) = workload.roles
    assert (role.count, role.needed) == (1, 1)
    assert (role.request.cpu_milli, role.request.memory_mib, role.request.gpus) == (1000, 1024, 0)
    assert program.command == ()


def test_every_field_has_its_place() -> None:
    workload, program = one(
        {
            "apiVersion": "kaiwo.ai/v1alpha2",
            "kind": "Workload",
            "name": "train",
            "namespace": "lab",
            "queue": "vision",
            "user": "ada@example.com",
            "type": "training",
            "priority": 7,
            "preemptible": False,
            "gpus": 8,
            "gpuModels": ["mi300x", "AMD Instinct MI325X"],
            "cpu": "64",
            "memory": "512Gi",
            "pods": 4,
            "minPods": 2,
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "command": ["python", "train.py"],
            "image": "example/train",
            "env": {"SEED": "1"},
            "workdir": "/work",
            "time": "2h30m",
            "estimate": 3600,
            "retries": 3,
            "after": ["prepare", "other/clean"],
            "hold": True,
            "labels": {"team": "vision"},
        }
    )
    assert workload.name == "lab/train"
    assert (workload.queue, workload.user, workload.kind) == ("vision", "ada@example.com", "training")
    assert (workload.priority, workload.preemptible, workload.held) == (7, False, True)
    assert (workload.time_limit_s, workload.estimate_s) == (9000, 3600)
    assert workload.after == ("lab/prepare", "other/clean")
    assert workload.labels == {"team": "vision"}
    (role,) = workload.roles
    assert (role.count, role.minimum) == (4, 2)
    assert role.request.gpu_models == ("MI300X", "MI325X")
    assert role.request.node_rules == (NodeRule("zone", "In", ("a",)),)
    assert role.request.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"),)
    assert (program.command, program.image, program.workdir) == (("python", "train.py"), "example/train", "/work")
    assert (program.env, program.retries) == ({"SEED": "1"}, 3)


@pytest.mark.parametrize(
    ("fields", "wants"),
    [
        ({"gpus": 4}, "4 GPUs"),
        ({"gpus": 1}, "1 GPU"),
        ({"gpus": 4, "pods": 8}, "8 pods x 4 GPUs"),
        ({"gpuFraction": "0.5"}, "0.5 GPU"),
        ({"gpuFraction": 0.25, "gpuDevices": 2}, "2 x 0.25 GPU"),
        ({"gpuFraction": 1}, "1 GPU"),
        ({"gpuMemory": 16000}, "16000 MiB of a GPU"),
        ({"gpuMemory": "16Gi", "gpuDevices": 2}, "2 x 16 GiB of a GPU"),
        ({"cpu": 4}, "4 CPUs"),
        ({"cpu": 0, "memory": 0}, "nothing"),
    ],
)
def test_what_is_wanted(fields: dict[str, Any], wants: str) -> None:
    assert describe_workload(one({"name": "t", **fields})[0]) == wants


def test_types_have_their_own_priority() -> None:
    kinds = ("training", "batch", "notebook", "inference")
    assert [one({"name": "t", "type": kind})[0].priority for kind in kinds] == [50, 50, 75, 100]


def test_the_caller_knows_the_rest() -> None:
    defaults = ManifestDefaults(submitted_s=1234, namespace="lab", queue="vision", user="ada")
    ((workload, _),) = parse({"name": "t"}, defaults).submissions
    assert (workload.name, workload.queue, workload.user, workload.submitted_s) == ("lab/t", "vision", "ada", 1234)


def test_an_array_becomes_one_workload_for_each_index() -> None:
    submissions = parse({"name": "sweep", "array": "0-2,7", "gpus": 1, "labels": {"a": "b"}}).submissions
    assert [workload.name for workload, _ in submissions] == [f"default/sweep-{index}" for index in (0, 1, 2, 7)]
    assert submissions[3][0].labels == {"a": "b", "kaiwo.ai/array": "sweep", "kaiwo.ai/array-index": "7"}
    assert len(parse({"name": "sweep", "array": "0-9999"}).submissions) == 10_000
    stepped = parse({"name": "sweep", "array": "0-9:3,20%2"}).submissions
    assert [workload.name for workload, _ in stepped] == [f"default/sweep-{index}" for index in (0, 3, 6, 9, 20)]
    assert {workload.labels["kaiwo.ai/array-slots"] for workload, _ in stepped} == {"2"}
    either = [parse({"name": "sweep", "array": text}).submissions for text in ("0-99%5:2", "0-99:2%5")]
    assert either[0] == either[1]


def test_an_unknown_model_waits_with_a_warning() -> None:
    assert "did you mean MI300X?" in warnings_of({"name": "t", "gpus": 1, "gpuModels": ["MI300"]})
    assert request_of({"name": "t", "gpus": 1, "gpuModels": ["K80"]}).gpu_models == ("K80",)


LONG = "x" * 64


@pytest.mark.parametrize(
    ("fields", "field", "parts"),
    [
        ({"name": ""}, "name", ["train-1"]),
        ({"name": "My_Job"}, "name", ['"My_Job"', 'write "my-job"']),
        ({"name": "-a"}, "name", ['write "a"']),
        ({"name": "a..b"}, "name", ["lower-case"]),
        ({"name": "a/b"}, "name", ['write "a-b"']),
        ({"name": LONG}, "name", ["at most 63"]),
        ({"name": 5}, "name", ["text", "quotes"]),
        ({"name": None}, "name", ["empty"]),
        ({"name": "($name)"}, "name", ["template"]),
        ({"namespace": "a.b"}, "namespace", ['write "a-b"']),
        ({"queue": "Big Queue"}, "queue", ['write "big-queue"']),
        ({"queue": None}, "queue", ["is empty", "leave it out"]),
        ({"user": "a\nb"}, "user", ["printable"]),
        ({"type": "train"}, "type", ["did you mean training?"]),
        ({"kind": "workload"}, "kind", ["did you mean Workload?"]),
        ({"apiVersion": "v1"}, "kind", ["is missing"]),
        ({"kind": "Workload", "apiVersion": "v1"}, "apiVersion", ["kaiwo.ai/v1alpha2"]),
        ({"GPUs": 4}, "GPUs", ["not a known field", "did you mean gpus?"]),
        ({"gpuFracton": "0.5"}, "gpuFracton", ["did you mean gpuFraction?"]),
        ({"xyzzy": 1}, "xyzzy", ["not a known field", "use one of", "gpuFraction"]),
        ({"metadata": {"name": "x"}}, "metadata", ["short form", "name: train"]),
        ({"replicas": 2}, "replicas", ["pods: 8"]),
        ({"gpus": "4"}, "gpus", ["whole number", "not text"]),
        ({"gpus": True}, "gpus", ["whole number"]),
        ({"gpus": 0.5}, "gpus", ['gpuFraction: "0.5"']),
        ({"gpus": -1}, "gpus", ["negative"]),
        ({"gpus": 500}, "gpus", ["500 whole GPUs, not half of one", 'gpuFraction: "0.5"']),
        ({"gpus": 9223372036854775807}, "gpus", ["at most 64"]),
        ({"gpuFraction": "1.5"}, "gpuFraction", ["0.01 to 1", "whole GPUs"]),
        ({"gpuFraction": "50%"}, "gpuFraction", ["percent"]),
        ({"gpuFraction": "0.5", "gpus": 1}, "gpus", ["remove one", "gpuDevices"]),
        ({"gpuDevices": 2}, "gpuDevices", ["add gpuFraction or gpuMemory"]),
        ({"gpuDevices": 0, "gpuFraction": "0.5"}, "gpuDevices", ["1 to 64"]),
        ({"gpuMemory": -1}, "gpuMemory", ["negative"]),
        ({"gpuModels": "MI300X"}, "gpuModels", ["list", '["MI300X"]']),
        ({"gpuModels": [""], "gpus": 1}, "gpuModels", ["such as MI300X"]),
        ({"cpu": "lots"}, "cpu", ['"500m"']),
        ({"memory": "-16Gi"}, "memory", ["negative"]),
        ({"memory": 16}, "memory", ["less than 1 MiB", '"16Gi"']),
        ({"pods": 0}, "pods", ["asks for no pods"]),
        ({"pods": 10_001}, "pods", ["1 to 10,000"]),
        ({"pods": 2, "minPods": 3}, "minPods", ["3 and pods is 2"]),
        ({"minPods": 0}, "minPods", ["1 to"]),
        ({"nodeSelector": {"zone": 1}}, "nodeSelector.zone", ["text", "quotes"]),
        ({"nodeSelector": {"a b": "1"}}, "nodeSelector", ['"a b"']),
        ({"tolerations": [{"key": "a", "operator": "Is"}]}, "tolerations[0].operator", ["Exists"]),
        ({"tolerations": [{"kee": "a"}]}, "tolerations[0].kee", ["did you mean key?"]),
        ({"tolerations": [{"value": "a"}]}, "tolerations[0]", ["no key"]),
        ({"tolerations": ["a"]}, "tolerations[0]", ["a mapping"]),
        ({"command": "python train.py"}, "command", ['["python", "train.py"]']),
        ({"command": ["a", 1]}, "command[1]", ["text"]),
        ({"command": [" "]}, "command", ["empty word"]),
        ({"env": {"A": 1}}, "env.A", ["text in quotes"]),
        ({"env": {"A=B": "1"}}, "env", ["rename it"]),
        ({"env": ["A=1"]}, "env", ["a mapping"]),
        ({"command": ["a", "x" * 200_000]}, "command[1]", ["131,000 bytes", "into a file"]),
        ({"env": {"A": "x" * 200_000}}, "env.A", ["131,000 bytes"]),
        ({"command": ["a", "x" * 100_000], "array": "0-9999"}, "array", ["10,000 tasks", "into a file"]),
        ({"image": "x" * 2000}, "image", ["1000"]),
        ({"workdir": "here"}, "workdir", ["absolute"]),
        ({"time": "1:30:00"}, "time", ['"2h30m"']),
        ({"time": 0}, "time", ["1 second"]),
        ({"retries": -1}, "retries", ["0 to"]),
        ({"array": "0-99%0"}, "array", ["%N", "50 at once"]),
        ({"array": "0-9%2,3%4"}, "array", ["%N", "50 at once"]),
        ({"array": "0-9%"}, "array", ["%N", "50 at once"]),
        ({"array": "0-9:0"}, "array", ["step", "at least 1"]),
        ({"array": "5:2"}, "array", ["step needs a range"]),
        ({"array": "a"}, "array", ['"0-9"']),
        ({"array": ""}, "array", ['"0-9"']),
        ({"array": "5-1"}, "array", ["backwards"]),
        ({"array": "1,1"}, "array", ["twice"]),
        ({"array": "0-10000"}, "array", ["10,000 tasks"]),
        ({"array": "0-999999999"}, "array", ["at most"]),
        ({"array": 5}, "array", ["quotes"]),
        ({"name": "x" * 62, "array": "0-9"}, "name", ["too long for an array"]),
        ({"after": "a"}, "after", ["a list"]),
        ({"after": ["A B"]}, "after[0]", ['write "a-b"']),
        ({"after": ["t"]}, "after", ["itself"]),
        ({"hold": "yes"}, "hold", ["true or false"]),
        ({"labels": {"a": "x y"}}, "labels.a", ["63"]),
        ({"labels": {"": "x"}}, "labels", ["key"]),
        ({"labels": {f"l{index}": "" for index in range(101)}}, "labels", ["101 labels"]),
        ({"labels": {"a": 1}}, "labels.a", ["quotes"]),
        ({"simulate": "5m", "command": ["a"]}, "simulate", ["remove"]),
        ({"priority": 10**10}, "priority", ["1,000,000,000"]),
        ({"priority": "high"}, "priority", ["whole number"]),
        ({"array": "0-9999", "pods": 11}, "document 1", ["100,000 pods", "split"]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_slip_gets_one_sentence(fields: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal({"name": "t", **fields}, field, parts)


def test_a_form_without_a_name_is_named_by_its_place() -> None:
    check_refusal("gpus: 1\n", "name", ["document 1", "is missing"])
    check_refusal("name: a\n---\nnaem: b", "naem", ["document 2", "did you mean name?"])


def test_secrets_stay_out_of_messages() -> None:
    secrets = {"TOKEN": "hunter2"}
    for fields in (
        {"gpus": "x"},
        {"env": {**secrets, "B": 1}},
        {"env": {**secrets, "B C": "1"}},
        {"command": ["hunter2", 1]},
    ):
        with pytest.raises(ConfigError) as caught:
            parse({"name": "t", "env": secrets, **fields})
        assert "hunter2" not in str(caught.value)


def test_names_stand_once_in_a_text() -> None:
    check_refusal("name: a\n---\nname: a", "name", ["'default/a'", "appears twice"])
    assert len(parse_all("name: a\n---\nname: a\nnamespace: other").submissions) == 2


def test_a_text_cannot_ask_for_the_world() -> None:
    check_refusal("name: a\narray: 0-9999\n---\nname: b\n", "document 2", ["10,000 workloads", "split"])


def test_a_form_comes_as_json_or_as_a_mapping() -> None:
    text = '{"name": "t", "gpus": 2}'
    for form in (read_json(text), read_json(text.encode()), {"name": "t", "gpus": 2}):
        ((workload, _),) = parse(form).submissions
        assert workload.roles[0].request.gpus == 2
    with pytest.raises(ConfigError, match="document 1: name is missing"):
        parse(read_json(b"{}"))


def test_the_schema_is_the_form() -> None:
    schema = msgspec.json.schema(SUBMISSION_FORM)
    form = schema["$defs"]["Submission"]
    assert form["additionalProperties"] is False
    assert form["required"] == ["name"]
    for name in ("gpuFraction", "minPods", "nodeSelector", "simulate"):
        assert name in form["properties"]
    assert form["properties"]["name"]["pattern"].startswith("^[a-z0-9]")
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema
