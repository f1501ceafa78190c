"""Views of the whole cluster and of its scheduling cycles."""

from kaiwo import __version__
from kaiwo.api.views.cluster import ClusterView, CycleView, StatusView, Usage
from kaiwo.history import CycleHead
from kaiwo.runtime.loop.cycle_runner import CycleSummary
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.overview.cluster_overview import ClusterOverview


def status_view(overview: ClusterOverview) -> StatusView:
    """The view of the cluster; call after `overview.fresh`."""
    live, sums = overview.live, overview.sum_nodes()
    return StatusView(
        cluster=cluster_view(live),
        nodes=Usage(sums.nodes, sums.nodes_used),
        nodes_out=sums.nodes_out,
        gpus=Usage(sums.gpus, sums.gpus_used),
        gpu_milli=Usage(sums.gpu_milli, sums.gpu_used_milli),
        cpu_milli=Usage(sums.cpu_milli, sums.cpu_used_milli),
        memory_mib=Usage(sums.memory_mib, sums.memory_used_mib),
        workloads=overview.count_states(),
        queues=len(live.state.queue_objects),
        last_cycle=None if live.last_cycle is None else cycle_view(live.last_cycle),
        version=__version__,
    )


def cluster_view(live: LiveLoop) -> ClusterView:
    cluster, virtual_time = live.cluster, live.cluster.abilities.virtual_time
    confinement = cluster.abilities.confinement
    return ClusterView(
        kind=cluster.kind,
        name=cluster.name or cluster.kind,
        is_virtual=cluster.is_virtual,
        speed=1.0 if virtual_time is None else virtual_time.speed,
        now_s=cluster.now_s(),
        memory_promise="" if confinement is None else confinement.promise,
        memory_remedy="" if confinement is None else confinement.remedy,
    )


def cycle_view(cycle: CycleSummary | CycleHead) -> CycleView:
    return CycleView(
        number=cycle.number,
        at_s=cycle.at_s if isinstance(cycle, CycleSummary) else cycle.now_s,
        starts=cycle.starts,
        evictions=cycle.evictions,
        waits=cycle.waits,
        steps=cycle.steps,
        took_ms=cycle.took_us / 1000,
        notes=[": ".join(filter(None, (note.code, note.subject, note.detail))) for note in cycle.notes],
    )
