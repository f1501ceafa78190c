"""The defragmentation run of a Kubernetes cluster: asked for, aborted, and how far it is, in one ConfigMap.

What a plan begins is written before the first pod is evicted. So whoever leads next knows every move that was begun,
and begins none a second time.
"""

from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.model.defragmentation import DefragmentationRun, RunState, StepProgress, begun_s
from kaiwo.model.errors import ClusterError, NotFoundError, RefusedError
from kaiwo.model.events import DefragmentationChanged, DefragmentationStepChanged, Event
from kaiwo.model.plan import Plan

KEY = "run"
MANAGER = "kaiwo-moves"
MOST_CHARACTERS = 900_000  # of a ConfigMap
HOUR_S = 3600


class StoredRun(msgspec.Struct, frozen=True):
    run: DefragmentationRun
    steps: tuple[StepProgress, ...] = ()


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class KubernetesMoves:
    """The `MoveControl` of a Kubernetes cluster."""

    def __init__(
        self,
        client: Client,
        name: str,
        now_s: Callable[[], int],
        publish: Callable[[Sequence[Event]], None],
        report: Callable[..., None],
    ) -> None:
        self._client, self._name, self._now_s, self._publish, self._report = client, name, now_s, publish, report
        self._namespace = client.access.namespace
        self._stored: StoredRun | None = None

    def in_namespace(self, namespace: str) -> None:
        """Where the ConfigMap is, if that is not the namespace of the credential."""
        self._namespace = namespace or self._namespace

    def current(self) -> DefragmentationRun | None:
        return self._stored.run if self._stored is not None else None

    async def start(self, run: DefragmentationRun, who: str = "") -> DefragmentationRun:
        before, now_s = self._stored, self._now_s()
        if before is not None and not before.run.is_over:
            raise RefusedError(f"run {before.run.name} is not over; wait for it, or abort it with: kaiwo defrag abort")
        recent = [] if before is None else [*before.run.recent_s, *begun_s(before.steps)]
        kept = tuple(sorted(at_s for at_s in recent if at_s > now_s - HOUR_S))
        await self._change(StoredRun(replace(run, by=who, begun_s=now_s, recent_s=kept)))
        return self._published()

    async def abort(self, who: str = "") -> DefragmentationRun:
        if self._stored is None or self._stored.run.is_over:
            raise NotFoundError("no defragmentation is running; kaiwo defrag status shows the last one")
        aborting = replace(self._stored.run, state=RunState.ABORTING)
        await self._change(replace(self._stored, run=aborting))
        return self._published()

    async def load(self) -> None:
        """What the leader before wrote. Where it cannot be read, nothing is known, and nothing is moved."""
        try:
            found = msgspec.json.decode(await self._client.read(self._path), type=_ConfigMap)
            text = (found.data or {}).get(KEY, "")
            self._stored = msgspec.json.decode(text, type=StoredRun) if text else None
        except ApiError as error:
            if not error.is_not_found:
                self._report("moves-not-read", level="warning", error=str(error))
        except (UnreachableError, msgspec.MsgspecError) as error:
            self._report("moves-not-read", level="warning", error=str(error))

    def events(self) -> list[Event]:
        if self._stored is None:
            return []
        return [DefragmentationChanged(self._stored.run), *map(DefragmentationStepChanged, self._stored.steps)]

    async def apply(self, plan: Plan) -> bool:
        """Write how far the run is. False: that failed, and the plan's moves must not begin."""
        stored = self._stored
        if stored is None or not (plan.move_steps or plan.moves_over):
            return True
        steps = {step.number: step for step in stored.steps}
        steps |= {step.number: step for step in plan.move_steps if step.run == stored.run.name}
        run = stored.run.ended(self._now_s()) if plan.moves_over == stored.run.name else stored.run
        try:
            await self._write(StoredRun(run, tuple(steps[at] for at in sorted(steps))))
        except (ApiError, UnreachableError) as error:
            self._report("moves-not-written", level="warning", error=str(error))
            # What the scheduler assumed is not so.
            old = {step.number: step for step in stored.steps}
            again = [old.get(step.number) or _unbegun(step) for step in plan.move_steps]
            self._publish([DefragmentationChanged(stored.run), *map(DefragmentationStepChanged, again)])
            return False
        return True

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{quote(self._namespace)}/configmaps/{quote(self._name)}"

    def _published(self) -> DefragmentationRun:
        assert self._stored is not None
        self._publish([DefragmentationChanged(self._stored.run)])
        return self._stored.run

    async def _change(self, stored: StoredRun) -> None:
        """At a person's request: raises what went wrong as a sentence."""
        try:
            await self._write(stored)
        except (ApiError, UnreachableError) as error:
            raise ClusterError(
                f"the run cannot be stored in ConfigMap {self._namespace}/{self._name}: {error}"
            ) from error

    async def _write(self, stored: StoredRun) -> None:
        text = msgspec.json.encode(stored).decode()
        if len(text) > MOST_CHARACTERS:
            raise RefusedError("these are too many moves for one run; ask for fewer with --most-moves")
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._name}}
        await self._client.apply(self._path, msgspec.json.encode(head | {"data": {KEY: text}}), MANAGER)
        self._stored = stored


def _unbegun(step: StepProgress) -> StepProgress:
    moves = tuple(type(move)() for move in step.moves)
    return replace(step, moves=moves, is_freed=False)
