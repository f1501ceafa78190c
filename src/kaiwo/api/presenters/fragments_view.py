"""Turn measured fragments into the API's answer."""

from kaiwo.api.views.fragments import DomainFragmentsView, FragmentsView, KindRoomView, NodeFragmentsView
from kaiwo.gpus.fragments import ClusterFragments, measure_fragments
from kaiwo.snapshot.cluster_state import ClusterState


def fragments_of(state: ClusterState) -> ClusterFragments:
    state.refresh_tables()
    return measure_fragments(state.nodes, state.seen_requests.weights)


def fragments_view(state: ClusterState, now_s: int) -> FragmentsView:
    found = fragments_of(state)
    return FragmentsView(
        now_s,
        found.free_milli,
        found.stranded_milli,
        found.ratio_permille / 1000,
        {reason.value: milli for reason, milli in found.by_reason.items()},
        [
            NodeFragmentsView(
                each.node, each.model, each.free_milli, each.whole_gpus, each.cpu_free_milli, each.stranded_milli,
                each.reason.value if each.reason is not None else "", each.ratio_permille / 1000,
            )
            for each in sorted(found.nodes, key=lambda each: (-each.stranded_milli, each.node))
        ],
        [
            DomainFragmentsView(
                each.topology, each.level, each.domain, each.free_milli, each.stranded_milli, each.ratio_permille / 1000
            )
            for each in found.domains
        ],
        kind_rooms(found),
    )  # fmt: skip


def kind_rooms(found: ClusterFragments) -> list[KindRoomView]:
    """The kinds of requests that were seen, the most frequent first, and how many more pods of each fit."""
    return [
        KindRoomView(
            each.kind.gpus, each.kind.gpu_milli, each.kind.cpu_milli, list(each.kind.models),
            each.weight_permille / 1000, each.pods,
        )
        for each in found.kinds
    ]  # fmt: skip
