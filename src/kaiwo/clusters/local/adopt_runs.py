"""Adopt runs that the stored state does not know, from their folders, before anything is scheduled.

A process that lives on holds its devices, whatever became of state.db: it is adopted, or stopped where its node or its
devices are gone, and no other work gets its devices meanwhile. After state.db was lost or restored, runs that have
ended since are read back as well, so that none of them runs twice.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.local.run_folder import RunCondition, RunFolder, RunSpec
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload, role_name
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState

DEVICE_VARIABLES = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
NODE_GONE = "its node {node} is gone"


class FoundRun(NamedTuple):
    folder: RunFolder
    condition: RunCondition
    tracked: TrackedWorkload
    placement: PlacedRun
    ended: float  # for their order


class Adopted(NamedTuple):
    running: tuple[str, ...]  # workloads
    ended: tuple[str, ...]


def find_unknown_runs(runs: Path, state: EmbeddedState, with_ended: bool) -> list[FoundRun]:
    """The runs whose folders say that they began, and that no pod of the state stands for; ended ones first."""
    found = []
    for path in sorted(runs.iterdir()):
        folder = RunFolder(path)
        if path.name in state.pod_of_run or not path.is_dir():
            continue
        condition = folder.condition()
        is_wanted = condition is RunCondition.RUNNING or (
            with_ended and path.name not in state.runs and condition is not RunCondition.NEVER_BEGAN
        )
        run = _read(folder, condition) if is_wanted else None
        if run is not None:
            found.append(run)
    return sorted(found, key=lambda each: (each.condition is not RunCondition.ENDED, each.ended))


def adopt(transaction: Transaction, found: Iterable[FoundRun]) -> Adopted:
    """Call it when the nodes are known."""
    running, ended = [], []
    for run in found:
        run = _named_freely(transaction.state, run)
        _ensure_queue(transaction, run.tracked.workload.queue)
        transitions.adopt_run(transaction, run.tracked, run.placement)
        name, pod = run.placement.pod.workload, run.placement.pod
        if run.condition is RunCondition.ENDED:
            transitions.run_ended(transaction, run.placement.run.id, run.folder.end())
            ended.append(name)
        else:
            running.append(name)
            node = transaction.state.nodes.get(pod.node)
            usage = transaction.state.ledger.usage_of(pod.node)
            why = NODE_GONE.format(node=pod.node) if node is None else overcommit(node, usage)
            if why:
                transitions.evict(transaction, name, [pod.name], why)
    return Adopted(tuple(dict.fromkeys(running)), tuple(dict.fromkeys(ended)))


def _named_freely(state: EmbeddedState, found: FoundRun) -> FoundRun:
    """A later workload may have its name: then it goes on under another one."""
    run, current = found.placement.run, state.workloads.get(found.placement.run.workload)
    if current is None:
        return found
    known = (current.record.submission, current.record.attempt)
    if known < (run.submission, run.attempt):
        return found
    if known == (run.submission, run.attempt) and not current.is_over:
        return found._replace(tracked=current)
    name = f"{run.workload}-found-{run.id}"
    tracked = replace(
        found.tracked, record=replace(found.tracked.record, workload=replace(found.tracked.workload, name=name))
    )
    pod = replace(found.placement.pod, workload=name)
    return found._replace(tracked=tracked, placement=PlacedRun(pod, replace(run, workload=name)))


def _ensure_queue(transaction: Transaction, name: str) -> None:
    """Its queue may be lost with the state; without a quota it takes nothing from others."""
    if name not in transaction.state.queues:
        transaction.put_queue(Queue(name, created_s=transaction.now_s))


def _read(folder: RunFolder, condition: RunCondition) -> FoundRun | None:
    """None: nothing in the folder says what ran there."""
    try:
        spec = msgspec.json.decode((folder.path / "run.json").read_bytes(), type=RunSpec)
        end = folder.exit_record() if condition is RunCondition.ENDED else None
    except (OSError, msgspec.MsgspecError, ClusterError):
        return None
    saved = spec.saved
    if saved is None:
        if not spec.workload:
            return None
        tracked, placement = _without_saved(folder.path.name, spec)
    else:
        program = replace(saved.tracked.record.program, env=_own_variables(spec.env))
        tracked = replace(saved.tracked, record=replace(saved.tracked.record, program=program))
        placement = saved.placement
    placement = replace(placement, pod=replace(placement.pod, phase=Phase.RUNNING))
    return FoundRun(folder, condition, tracked, placement, end.ended if end is not None else 0.0)


def _without_saved(run_id: str, spec: RunSpec) -> tuple[TrackedWorkload, PlacedRun]:
    """From a folder that an older Kaiwo wrote: what its process was told."""
    env, shares = spec.env, spec.devices
    count = int(env.get("KAIWO_PODS", "1"))
    attempt = int(env.get("KAIWO_ATTEMPT", "1"))
    milli, mib = (shares[0].milli, shares[0].mib) if shares else (0, 0)
    request = Request(gpus=len(shares), gpu_milli=milli or WHOLE_MILLI, gpu_mib=0 if milli else mib)
    workload = Workload(spec.workload, (Role(request, role_name(spec.pod), count),))
    program = Program(command=spec.command, env=_own_variables(env), workdir=spec.workdir)
    record = WorkloadRecord(workload, program, WorkloadState.RUNNING, attempt=attempt)
    pod = Pod(spec.workload, spec.pod, env.get("KAIWO_NODE", ""), devices=shares)
    return TrackedWorkload(record), PlacedRun(pod, Run(run_id, spec.workload, spec.pod, attempt, is_process=True))


def _own_variables(env: Mapping[str, str]) -> dict[str, str]:
    """What its user set: without the variables that Kaiwo adds."""
    return {key: value for key, value in env.items() if not key.startswith("KAIWO_") and key not in DEVICE_VARIABLES}
