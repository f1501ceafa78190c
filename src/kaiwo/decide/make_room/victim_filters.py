"""Ask the victim filters which running work may be stopped: victim units in, one boolean each out."""

from collections.abc import Sequence

import numpy as np

from kaiwo.decide.make_room.victim_units import MayStop, VictimUnit
from kaiwo.model.planned_start import expected_run_s
from kaiwo.model.policy import Policy
from kaiwo.plugins.builtin.victim_filters import EndsSoon
from kaiwo.plugins.contract import VictimFilter, VictimTable
from kaiwo.plugins.guarded_calls import call_plugin
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.array_types import BoolArray, freeze
from kaiwo.snapshot.queue_table import GPU
from kaiwo.snapshot.view import View


def victim_filters(view: View, plugins: ActivePlugins, policy: Policy) -> MayStop | None:
    """None when no plugin has an opinion."""
    asked = [plugin for plugin in plugins.victim_filters if not _is_off(plugin, policy)]
    if not asked:
        return None

    def may_stop(units: Sequence[VictimUnit]) -> BoolArray:
        victims, verdict = _victims(units), np.ones(len(units), np.bool_)
        for plugin in asked:
            answer = call_plugin(plugin.name, plugin.victim_filter, len(units), view, victims, policy)
            verdict &= answer.astype(np.bool_)
        return verdict

    return may_stop


def _is_off(plugin: VictimFilter, policy: Policy) -> bool:
    """Then no table of all running work is made for it, which was a sixth of a reclaim."""
    return isinstance(plugin, EndsSoon) and not policy.spare_ending_s


def _victims(units: Sequence[VictimUnit]) -> VictimTable:
    numbers = [
        (unit.workload.priority, unit.charge[GPU], unit.since_s, _ends_s(unit), unit.lost_gpu_s) for unit in units
    ]
    columns = np.array(numbers, np.int64).reshape(-1, 5).T.copy()
    is_surplus = np.array([unit.is_surplus for unit in units], np.bool_)
    freeze(columns)
    freeze(is_surplus)
    priority, gpu_milli, since_s, ends_s, lost_gpu_s = columns
    return VictimTable(
        tuple(unit.workload.name for unit in units),
        tuple(unit.workload.queue for unit in units),
        priority,
        gpu_milli,
        since_s,
        ends_s,
        lost_gpu_s,
        is_surplus,
    )


def _ends_s(unit: VictimUnit) -> int:
    run_s = expected_run_s(unit.workload)
    return unit.since_s + run_s if run_s else 0
