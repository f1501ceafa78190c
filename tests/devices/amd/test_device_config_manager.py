"""What AMD's Device Config Manager is told, and how its answer is read."""

from kaiwo.devices.amd.device_config_manager import (
    PROFILE_LABEL,
    STATE_LABEL,
    dcm_state,
    labels_for,
    profile_name,
    with_profile,
)
from kaiwo.model.gpus.partition_modes import Mode

MIXED = [Mode("CPX", "NPS1")] * 6 + [Mode("SPX", "NPS1")] * 2


def test_a_layout_has_one_name_and_the_managers_own_form() -> None:
    assert profile_name([Mode("CPX", "NPS4")] * 8) == "cpx-nps4-x8"
    config = with_profile({"gpu-config-profiles": {"theirs": {}}, "gpuClientSystemdServices": {"names": ["x"]}}, MIXED)
    assert config["gpu-config-profiles"]["theirs"] == {}
    assert config["gpuClientSystemdServices"] == {"names": ["x"]}
    assert config["gpu-config-profiles"]["cpx-nps1-x6.spx-nps1-x2"] == {
        "skippedGPUs": {"ids": []},
        "profiles": [
            {"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 6},
            {"computePartition": "SPX", "memoryPartition": "NPS1", "numGPUsAssigned": 2},
        ],
    }


def test_an_old_answer_is_not_taken_for_the_new_one() -> None:
    labels = {PROFILE_LABEL: "spx-nps1-x8", STATE_LABEL: "success"}
    assert dcm_state(labels, "cpx-nps4-x8") == "waiting"
    for label, value in labels_for("cpx-nps4-x8").items():
        if value is None:
            labels.pop(label, None)
        else:
            labels[label] = value
    assert dcm_state(labels, "cpx-nps4-x8") == "waiting"
    assert dcm_state({**labels, STATE_LABEL: "success"}, "cpx-nps4-x8") == "done"
    assert dcm_state({**labels, STATE_LABEL: "failure"}, "cpx-nps4-x8") == "failed"
