"""Make what the supervisor of a run needs to know from the stored workload and its place."""

from pathlib import Path

from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import PlacedRun, TrackedWorkload
from kaiwo.clusters.embedded.state import EmbeddedState
from kaiwo.clusters.local.open_files import inherited_open_files
from kaiwo.clusters.local.process_environment import environment
from kaiwo.clusters.local.run_folder import RunSpec, SavedRun
from kaiwo.model.workload import RELEASING_PHASES, Pod, Workload, ordered_pods, request_of


def make_spec(
    state: EmbeddedState, placement: PlacedRun, home: Path, *, grace_s: float, log_bytes: int, speed: float
) -> RunSpec:
    """`speed`: virtual seconds in a real one."""
    tracked = state.workloads[placement.run.workload]
    record = tracked.record
    request = request_of(record.workload, placement.run.pod)
    folder, node = home / "runs" / placement.run.id, state.nodes.get(placement.pod.node)
    return RunSpec(
        command=record.program.command,
        env=environment(record, placement, node, str(folder), str(home), _gang(state, placement)),
        secret_env=record.program.secret_env,
        workdir=record.program.workdir or str(folder / "work"),
        log=str(folder / "log"),
        time_limit_s=record.workload.time_limit_s / speed,  # the supervisor has a real clock
        grace_s=grace_s,
        log_bytes=log_bytes,
        open_files=inherited_open_files(),
        workload=placement.run.workload,
        pod=placement.run.pod,
        devices=placement.pod.devices,
        isolation=request.isolation,
        least_grade=request.least_grade,
        saved=SavedRun(_without_environment(tracked), placement),
        console=record.program.is_interactive and placement.run.pod == first_pod(record.workload),
        memory_mib=request.memory_mib,
        cpu_milli=request.cpu_milli,
    )


def _gang(state: EmbeddedState, placement: PlacedRun) -> list[Pod]:
    """The pods of its workload that run or start with it."""
    placed = state.pods_of.get(placement.run.workload, {}).values()
    return [each.pod for each in placed if each.pod.phase not in RELEASING_PHASES]


def first_pod(workload: Workload) -> str:
    """The pod that has the console, if there is one."""
    return ordered_pods(workload)[0][0]


def _without_environment(tracked: TrackedWorkload) -> TrackedWorkload:
    program = replace(tracked.record.program, env={})
    return replace(tracked, record=replace(tracked.record, program=program))
