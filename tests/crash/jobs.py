"""What the crash test submits: real processes that leave traces, and simulated work, of all kinds."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from kaiwo.model.workload_record import WorkloadState

KINDS = (
    "single", "single", "gang", "fraction", "fraction", "memory", "failing", "flaky", "simulated", "limited", "after",
    "held", "endless", "array", "team",
)  # fmt: skip
EXPECTED = {"failing": WorkloadState.FAILED, "limited": WorkloadState.FAILED, "endless": WorkloadState.CANCELLED}
GPUS = 12  # of the whole cluster: see product.CLUSTER
DOES_WORK_ONCE = ("single", "gang", "fraction", "memory", "after", "held", "array", "team")


class Submission(NamedTuple):
    """One request that brings work, and the names it brings: all of them or none."""

    names: tuple[str, ...]
    path: str
    body: Any


def make_job(number: int, chance: random.Random, effects: Path, last: str) -> Submission:
    """Job after job the same for the same seed; `last`: a workload that is there already."""
    kind = chance.choice(KINDS)
    name = f"{kind}-{number:04d}"
    sleep_s = chance.choice((0.0, 0.02, 0.1, 0.4, 1.0))
    form: dict[str, Any] = {"name": name, "gpus": 1, "command": _shell(effects, f"sleep {sleep_s}")}
    match kind:
        case "gang":
            form["pods"] = chance.choice((2, 3, 6))
        case "fraction" | "memory":
            form.pop("gpus")
            form |= {"gpuFraction": "0.5"} if kind == "fraction" else {"gpuMemory": "60Gi"}
        case "failing":
            form |= {"command": _shell(effects, f"sleep {sleep_s}; exit 9"), "retries": 1}
        case "flaky":
            form |= {"command": _shell(effects, "test $KAIWO_ATTEMPT -gt 1 || exit 3"), "retries": 1}
        case "simulated":
            form |= {"command": [], "simulate": chance.randrange(5, 300), "pods": chance.choice((1, 2))}
        case "limited":
            form |= {"command": _shell(effects, "sleep 600"), "time": 1}
        case "after":
            form["after"] = [last] if last else []
        case "held":
            form["hold"] = True
        case "endless":
            form["command"] = _shell(effects, "sleep 600")
        case "array":
            form["array"] = "0-2"
            return Submission(tuple(f"default/{name}-{index}" for index in range(3)), "/workloads", form)
        case "team":
            return _team(name, form)
    return Submission((f"default/{name}",), "/workloads", form)


def kind_of(name: str) -> str:
    return name.partition("/")[2].partition("-")[0]


def _team(name: str, form: dict[str, Any]) -> Submission:
    """A queue and two workloads in it, in one text: JSON is YAML. The queue `default` keeps its claim to all GPUs."""
    kind = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue"}
    default = {**kind, "metadata": {"name": "default"}, "spec": {"resources": {"gpu": {"quota": GPUS}}}}
    queue = {**kind, "metadata": {"name": name}}
    forms = [{**form, "name": f"{name}-{index}", "queue": name} for index in range(2)]
    text = "\n---\n".join(json.dumps(document) for document in (default, queue, *forms))
    return Submission(tuple(f"default/{each['name']}" for each in forms), "/manifests", text)


def _shell(effects: Path, script: str) -> list[str]:
    """A line in one file for each beginning and each end: a process that runs twice cannot hide."""
    line = f'echo "$KAIWO_WORKLOAD $KAIWO_POD $KAIWO_ATTEMPT $KAIWO_RUN %s" >> {effects}'
    return ["sh", "-c", f"{line % 'start'}; {script}; {line % 'end'}"]
