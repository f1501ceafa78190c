"""Ask plugins about the starts of a plan: `reserve`, then `permit`, then `bind`; and tell `post_bind` afterwards.

One call for all workloads of a plan and each plugin, however many start. Never raises: a decision is worth more than
the opinion of a plugin that fails.
"""

import re
from typing import NamedTuple

from kaiwo.plugins.builtin import SWITCHED
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.edge_contract import StartPlacement, Verdict
from kaiwo.plugins.guarded_calls import one_line
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.loop.start_gate import GateAnswer, PluginRefusal

MAX_WHY = 300
MAX_AGAIN_S = 86_400
MAX_KEYS, MAX_VALUE = 32, 1_024
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?)/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
OWN_KEYS = "placement.kaiwo.ai"  # for Kaiwo's own plugins
# Keys of these mean something to Kaiwo or to Kubernetes.
_TAKEN = re.compile(r"((.*\.)?kaiwo\.ai|kaiwo\.silogen\.ai|(.*\.)?kubernetes\.io|(.*\.)?k8s\.io)")


class _Reserved(NamedTuple):
    plugin: Plugin
    placements: tuple[StartPlacement, ...]


class PluginStartGate:
    """Implements the loop's StartGate."""

    def __init__(self, calls: EdgeCalls) -> None:
        self._calls = calls

    @property
    def is_open(self) -> bool:
        return not any(self._calls.active_at(point) for point in ("reserve", "permit", "bind", "post_bind"))

    async def check(self, placements: tuple[StartPlacement, ...], now_s: int) -> GateAnswer:
        refused: dict[str, PluginRefusal] = {}
        reserved: list[_Reserved] = []
        left = placements
        for point in ("reserve", "permit"):
            for plugin in self._calls.active_at(point):
                if not left:
                    break
                new = await self._refusals(plugin, point, left, now_s)
                refused |= new
                left = tuple(each for each in left if each.workload not in new)
                if point == "reserve":
                    reserved.append(_Reserved(plugin, left))
        await self._unreserve(reserved, refused)
        return GateAnswer(refused, await self._annotations(left) if left else {})

    async def started(self, placements: tuple[StartPlacement, ...], now_s: int) -> None:
        for plugin in self._calls.active_at("post_bind"):
            await self._calls.call(plugin, "post_bind", type(None), placements, now_s)

    async def _refusals(
        self, plugin: Plugin, point: str, placements: tuple[StartPlacement, ...], now_s: int
    ) -> dict[str, PluginRefusal]:
        verdicts = await self._calls.call(plugin, point, list[Verdict], placements, now_s)
        if verdicts is None:
            return {}
        if len(verdicts) != len(placements):
            why = f"{point}: returned {len(verdicts)} verdicts for {len(placements)} placements"
            await self._calls.set_aside(plugin.name, why)
            return {}
        if wrong := next((each for each in verdicts if each.why and not 1 <= each.again_s <= MAX_AGAIN_S), None):
            why = f"{point}: refused for {wrong.again_s} s; expected 1 to {MAX_AGAIN_S:,}"
            await self._calls.set_aside(plugin.name, why)
            return {}
        return {
            each.workload: PluginRefusal(
                plugin.name, one_line(verdict.why, MAX_WHY) or "it gives no reason", verdict.again_s
            )
            for each, verdict in zip(placements, verdicts, strict=True)
            if verdict.why
        }

    async def _unreserve(self, reserved: list[_Reserved], refused: dict[str, PluginRefusal]) -> None:
        """Tell those that had reserved something for what a later plugin refused."""
        for plugin, placements in reserved:
            lost = tuple(each for each in placements if each.workload in refused)
            if lost and callable(getattr(plugin, "unreserve", None)):
                await self._calls.call(plugin, "unreserve", type(None), lost)

    async def _annotations(self, placements: tuple[StartPlacement, ...]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for plugin in self._calls.active_at("bind"):
            given = await self._calls.call(plugin, "bind", list[dict[str, str]], placements)
            if given is None:
                continue
            if why := wrong_annotations(given, len(placements), is_own=isinstance(plugin, SWITCHED)):
                await self._calls.set_aside(plugin.name, f"bind: {why}")
                continue
            for placement, new in zip(placements, given, strict=True):
                found[placement.workload] = new | found.get(placement.workload, {})  # the first plugin counts
        return {name: new for name, new in found.items() if new}


def wrong_annotations(given: list[dict[str, str]], placements: int, is_own: bool) -> str:
    if len(given) != placements:
        return f"returned {len(given)} answers for {placements} placements"
    for each in given:
        if len(each) > MAX_KEYS:
            return f"returned {len(each)} keys; {MAX_KEYS} is the most"
        for key, value in each.items():
            match = _KEY.fullmatch(key)
            if match is None:
                return f"returned the key {key!r:.80}; expected one such as example.com/seat"
            if _TAKEN.fullmatch(match[1]) and not (is_own and match[1] == OWN_KEYS):
                return f"returned the key {key!r:.80}, which is not for plugins"
            if len(value) > MAX_VALUE or not value.isprintable():
                return f"returned a value of {key!r:.80} that is too long or not printable"
    return ""
