"""Change the policy of a running scheduler, remember who changed it, and take the last change back.

In:    a policy that was checked.   Out: the loop decides by it from the next cycle on; `KAIWO_HOME/policy.json` has it.
The journal records the policy of every cycle, so a replay decides each cycle under the policy that it had.
"""

import asyncio
import hashlib
import os
from pathlib import Path

import msgspec

from kaiwo.model.errors import ClusterError, ConfigError, PluginError, RefusedError
from kaiwo.model.policy import Policy
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.loop_protocol import LiveLoop

FILE = "policy.json"
MOST_CHANGES = 50
NOT_HERE = (
    "the policy of this cluster is the value `policy` of its chart; change it with: "
    'helm upgrade kaiwo deploy/chart --reuse-values --set-json \'policy={"placement": "spread"}\''
)


class PolicyChange(msgspec.Struct, frozen=True):
    """One change: the policy before it and after it, by whom and when."""

    before: Policy
    after: Policy
    by: str
    at_s: int
    reason: str = ""


class StoredPolicy(msgspec.Struct, frozen=True):
    file_sha256: str  # of the policy file that was in force when the first change was made; empty: there was none
    changes: tuple[PolicyChange, ...]  # the newest last


class LivePolicy:
    """The policy in force. Without a folder (on Kubernetes, where the chart has it) it cannot be changed."""

    def __init__(self, home: str = "", path: str = "") -> None:
        self._file = Path(home) / FILE if home else None
        self._sha256 = _digest(path)
        self.path = path
        self.changes: tuple[PolicyChange, ...] = ()
        self.turn = asyncio.Lock()  # whoever reads the policy to change it: one at a time, or one change is lost

    def load(self, from_file: Policy, plugins: Registry) -> Policy:
        """The policy to start with: the last change, unless the policy file was edited since."""
        if self._file is None or not self._file.exists():
            return from_file
        try:
            stored = msgspec.json.decode(self._file.read_bytes(), type=StoredPolicy)
        except (OSError, msgspec.MsgspecError) as error:
            way_out = "remove it to start with the policy file"
            raise ConfigError(f"{self._file} cannot be read ({error}); {way_out}", "policy") from error
        if stored.file_sha256 != self._sha256 or not stored.changes:
            return from_file
        policy = stored.changes[-1].after
        try:
            plugins.active(policy)
        except PluginError as error:
            raise ConfigError(f"{self._file}: {error}; remove it to start with the policy file", "policy") from error
        self.changes = stored.changes
        return policy

    async def change(self, live: LiveLoop, policy: Policy, by: str, reason: str) -> None:
        """Use another policy from the next cycle on. Raises where it could not work."""
        before = self.check(live, policy)
        made = PolicyChange(before, policy, by, live.cluster.now_s(), reason)
        await self._use(live, policy, (*self.changes, made)[-MOST_CHANGES:])

    async def undo(self, live: LiveLoop) -> PolicyChange:
        """Take the last change back."""
        if self._file is None:
            raise RefusedError(NOT_HERE)
        if not self.changes:
            raise RefusedError("the policy was not changed since it was read from its file; nothing to undo")
        last = self.changes[-1]
        self.check(live, last.before)
        await self._use(live, last.before, self.changes[:-1])
        return last

    def check(self, live: LiveLoop, policy: Policy) -> Policy:
        """The policy in force, if this one may take its place."""
        if self._file is None:
            raise RefusedError(NOT_HERE)
        before = live.policy
        if (before.past_use_half_life_s, before.past_use_strength_milli) != (
            policy.past_use_half_life_s,
            policy.past_use_strength_milli,
        ):
            where = self.path or "a policy file (kaiwo up --policy FILE)"
            raise RefusedError(f"pastUse cannot be changed while Kaiwo runs; change it in {where} and restart Kaiwo")
        try:
            live.plugins.active(policy)
        except PluginError as error:
            raise ConfigError(f"the policy could not work: {error}", "policy") from error
        return before

    async def _use(self, live: LiveLoop, policy: Policy, changes: tuple[PolicyChange, ...]) -> None:
        """On disk first: what was acknowledged survives a crash."""
        assert self._file is not None
        _write(self._file, msgspec.json.encode(StoredPolicy(self._sha256, changes)))
        self.changes = changes
        await live.use_policy(policy)


def _write(file: Path, content: bytes) -> None:
    beside = file.with_suffix(".new")
    try:
        beside.touch(mode=0o600)
        with beside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.chmod(0o600)  # one that was left by an earlier version
        beside.replace(file)
    except OSError as error:
        raise ClusterError(
            f"{file} could not be written, and the policy is as before: {error}; free some room"
        ) from error


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""
