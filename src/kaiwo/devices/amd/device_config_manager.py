"""Profiles and labels for AMD's Device Config Manager (DCM), which sets partition modes on Kubernetes nodes.

Nothing is written to the cluster here; the caller applies these values.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from kaiwo.model.gpus.partition_modes import Mode

PROFILE_LABEL = "dcm.amd.com/gpu-config-profile"
STATE_LABEL = "dcm.amd.com/gpu-config-profile-state"
OPT_IN = ("kaiwo.ai/partitioning", "dcm")  # the label that lets Kaiwo use DCM on a node
TAINT = ("amd-dcm", "up", "NoExecute")  # drains the node; DCM and system pods tolerate it

State = Literal["waiting", "done", "failed"]


def profile_name(modes: Sequence[Mode]) -> str:
    """The name of a layout: `cpx-nps4-x8`, `cpx-nps1-x6.spx-nps1-x2`."""
    return ".".join(f"{mode.compute}-{mode.memory}-x{count}".lower() for mode, count in _runs(modes))


def dcm_profile(modes: Sequence[Mode]) -> dict[str, Any]:
    """DCM's profile of a layout; it assigns the modes in the order of the GPUs."""
    parts = [
        {"computePartition": mode.compute, "memoryPartition": mode.memory, "numGPUsAssigned": count}
        for mode, count in _runs(modes)
    ]
    return {"skippedGPUs": {"ids": []}, "profiles": parts}


def with_profile(config: Mapping[str, Any], modes: Sequence[Mode]) -> dict[str, Any]:
    profiles = dict(config.get("gpu-config-profiles") or {})
    profiles[profile_name(modes)] = dcm_profile(modes)
    return {**config, "gpu-config-profiles": profiles}


def labels_for(profile: str) -> dict[str, str | None]:
    """Label changes for the node (None: remove). The old state is removed, or it would be read as the result."""
    return {PROFILE_LABEL: profile, STATE_LABEL: None}


def dcm_state(labels: Mapping[str, str], profile: str) -> State:
    if labels.get(PROFILE_LABEL) != profile:
        return "waiting"
    reported = labels.get(STATE_LABEL, "").lower()
    return "done" if reported == "success" else "failed" if reported == "failure" else "waiting"


def _runs(modes: Sequence[Mode]) -> list[tuple[Mode, int]]:
    return [(mode, len(list(same))) for mode, same in groupby(modes)]
