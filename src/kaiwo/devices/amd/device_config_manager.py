"""The same change on Kubernetes nodes where AMD's Device Config Manager owns the GPUs: labels, and its profiles.

In:    the modes a node should have, or a node's labels.   Out: a profile, label changes, and how far the manager is.
Never: writes to the cluster: whoever holds the client applies these values.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from kaiwo.model.partition_modes import Mode

PROFILE_LABEL = "dcm.amd.com/gpu-config-profile"
STATE_LABEL = "dcm.amd.com/gpu-config-profile-state"
OPT_IN = ("kaiwo.ai/partitioning", "dcm")  # a label with which a node's owner lets Kaiwo ask the manager
TAINT = ("amd-dcm", "up", "NoExecute")  # drains the node; the manager and system pods tolerate it

State = Literal["waiting", "done", "failed"]


def profile_name(modes: Sequence[Mode]) -> str:
    """One name for one layout: `cpx-nps4-x8`, `cpx-nps1-x6.spx-nps1-x2`."""
    return ".".join(f"{mode.compute}-{mode.memory}-x{count}".lower() for mode, count in _runs(modes))


def dcm_profile(modes: Sequence[Mode]) -> dict[str, Any]:
    """The manager's own form of that layout: it hands the modes out in the order of the GPUs."""
    parts = [
        {"computePartition": mode.compute, "memoryPartition": mode.memory, "numGPUsAssigned": count}
        for mode, count in _runs(modes)
    ]
    return {"skippedGPUs": {"ids": []}, "profiles": parts}


def with_profile(config: Mapping[str, Any], modes: Sequence[Mode]) -> dict[str, Any]:
    """The manager's configuration with this layout added; what others wrote there stays."""
    profiles = dict(config.get("gpu-config-profiles") or {})
    profiles[profile_name(modes)] = dcm_profile(modes)
    return {**config, "gpu-config-profiles": profiles}


def labels_for(profile: str) -> dict[str, str | None]:
    """What to set on the node (None: remove). The old state goes too: it would be read as the answer."""
    return {PROFILE_LABEL: profile, STATE_LABEL: None}


def dcm_state(labels: Mapping[str, str], profile: str) -> State:
    """How far the manager is with this profile."""
    if labels.get(PROFILE_LABEL) != profile:
        return "waiting"
    reported = labels.get(STATE_LABEL, "").lower()
    return "done" if reported == "success" else "failed" if reported == "failure" else "waiting"


def _runs(modes: Sequence[Mode]) -> list[tuple[Mode, int]]:
    return [(mode, len(list(same))) for mode, same in groupby(modes)]
