"""Say how fast running work is: what it reported, and how its nodes compare with the others."""

from kaiwo.model.amounts import duration, rate
from kaiwo.model.performance import ProgressReport, usual_permille
from kaiwo.snapshot.cluster_state import ClusterState


def progress_words(report: ProgressReport) -> str:
    """`a step took 2.1 s, and 2 s were expected; 1200 steps are done`."""
    parts = []
    if report.step_us:
        expected = f", and {_step(report.expected_us)} were expected" if report.expected_us else ""
        parts.append(f"a step took {_step(report.step_us)}{expected}")
    if report.bandwidth_mb_s:
        parts.append(f"each GPU sent {rate(report.bandwidth_mb_s)}")
    if report.steps:
        parts.append(f"{report.steps:,} steps are done")
    of_pod = f"pod {report.pod}: " if report.pod else ""
    return of_pod + "; ".join(parts)


def progress(state: ClusterState, workload: str, now_s: int) -> str:
    """The last report of a workload, or of the pod that is slowest beside the others; empty: there is none."""
    reports = state.speeds.progress.get(workload, {})
    if not reports:
        return ""
    slowest = max(reports.values(), key=lambda each: (each.step_us, -each.bandwidth_mb_s, each.pod))
    several = f", the slowest of {len(reports)} that report" if len(reports) > 1 else ""
    return f"{progress_words(slowest)}{several}, {duration(max(0, now_s - slowest.at_s))} ago{_node(state, slowest)}"


def node_speed(state: ClusterState, node: str) -> str:
    """`62 % of the usual speed`; empty: nothing is known."""
    speed = state.speeds.nodes.get(node)
    usual = usual_permille(state.speeds.nodes.values())
    return f"{100 * speed.permille // usual} % of the usual speed" if speed is not None and speed.permille else ""


def _node(state: ClusterState, report: ProgressReport) -> str:
    """Of one pod: where it runs, and how fast that node is beside the others."""
    pod = state.pods.get(report.workload, {}).get(report.pod)
    speed = node_speed(state, pod.node) if pod is not None else ""
    return f"; {pod.node} runs at {speed}" if pod is not None and speed else ""


def _step(us: int) -> str:
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms"
    return f"{us / 1_000_000:.3g} s" if us < 120_000_000 else duration(us // 1_000_000)
