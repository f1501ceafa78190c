"""Say what a place protects: how much less it takes of what other requests could use than the fullest other node.

In:    running work, and the cluster as it is now.   Out: a sentence; empty where the mix of requests has no say.
Never: changes the state; the pod is taken away on a fork.
"""

import numpy as np

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.amounts import gpus
from kaiwo.model.events import PodGone
from kaiwo.model.workload import role_of
from kaiwo.plugins.builtin.request_mix import RequestMix, is_priced, lost_milli
from kaiwo.snapshot.node_table import CPU, FREE_GPU

WORTH_MILLI = 20  # of a GPU; less is not worth telling


def protected_room(what_if: WhatIf) -> str:
    """Of its first pod, as of now: `on node-3 it takes 1 GPU of what ...; on node-7, ..., it would take 1.8`."""
    state, name, active = what_if.state, what_if.name, what_if.active
    state.refresh_tables()
    pod = min(state.pods.get(name, {}).values(), key=lambda each: each.name, default=None)
    if pod is None or pod.node not in state.nodes.row:
        return ""
    want = state.request_of(what_if.workload, role_of(what_if.workload, pod.name))
    if not any(plugin.name == RequestMix.name for plugin, _ in active.scores_of(want)):
        return ""
    fork = state.fork()
    fork.patch([PodGone(name, pod.name)])
    fork.refresh_tables()
    cycle = CycleInput(fork, what_if.policy, active, what_if.now_s)
    cycle_state = CycleState(fork.snapshot(what_if.now_s), cycle)
    view = cycle_state.working.view
    if not is_priced(view, want):
        return ""
    slots, here = cycle_state.scores.state_of(want).slots.copy(), fork.nodes.row[pod.node]
    if not slots[here]:
        return ""
    slots[here] = 0
    others = slots.nonzero()[0]
    if not len(others):
        return ""
    left, size = (FREE_GPU, view.nodes.gpu_total) if want.gpus else (CPU, view.nodes.cpu_size)
    fullest = int(others[(1000 * view.free[others, left] // np.maximum(size[others], 1)).argmin()])
    taken, instead = (round(each, -1) for each in lost_milli(view, want, np.array([here, fullest])).tolist())
    if instead - taken < WORTH_MILLI:
        return ""
    return (
        f"on {pod.node} it takes {gpus(taken) if taken > 0 else 'nothing'} of what other requests could use; on "
        f"{view.nodes.names[fullest]}, the fullest other node with room, it would take {gpus(instead)}"
    )
