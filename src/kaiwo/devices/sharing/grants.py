"""Decide the grant of a pod, build the environment of its process, and store grants on disk.

Never: leaves out a vendor of the node: a process without devices of a vendor sees none of them.
"""

import contextlib
import hashlib
import os
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.devices.atomic_write import write_atomically
from kaiwo.devices.sharing.cu_mask import choose_units, mask_variables
from kaiwo.devices.sharing.isolation_method import IsolationChoice, choose_isolation, oversubscription
from kaiwo.devices.sharing.mps import client_variables
from kaiwo.devices.sharing.share_types import GpuDevice, Grant, GrantedDevice, GrantRequest, IsolationSupport, Refusal
from kaiwo.model.gpus.gpu import GRADE_RANKS

SUFFIX = ".json"
NO_DEVICE = "-1"


def decide_grant(
    request: GrantRequest, devices: Mapping[str, GpuDevice], platform: IsolationSupport, grants: Collection[Grant]
) -> Grant | Refusal:
    """Decide a grant. The whole pod has one isolation method: that of its weakest device."""
    unknown = [share.gpu for share in request.shares if share.gpu not in devices]
    if unknown:
        return Refusal(f"this machine has no device {unknown[0]}; it has {', '.join(devices) or 'none'}")
    choices: list[IsolationChoice] = []
    for share in request.shares:
        choice = choose_isolation(request, share, devices[share.gpu], platform)
        if isinstance(choice, Refusal):
            return choice
        choices.append(choice)
    if not choices:
        return Grant(request.owner, "whole", "partition", ())
    held = [
        GrantedDevice(devices[share.gpu], share.milli, share.mib, name=share.gpu, threads_milli=share.threads_milli)
        for share in request.shares
    ]
    return _make_grant(
        request, min(choices, key=lambda choice: GRADE_RANKS[choice.grade]), _in_visible_order(held), grants
    )


def grant_environment(grant: Grant, vendors: Collection[str], mps_folder: str = "") -> dict[str, str]:
    """The variables for a process. `vendors`: of the node's GPUs; `mps_folder`: of the daemon."""
    variables = visible_variables([one.device for one in grant.held], vendors)
    if grant.method == "mps":
        variables |= client_variables(grant.held, mps_folder)
    if grant.method == "cu-mask":
        variables |= mask_variables([one.units for one in grant.held])
    return {**variables, "KAIWO_GPU_ISOLATION": grant.grade}


def first_without_order(devices: Sequence[GpuDevice]) -> str:
    """The first AMD device without a known index, which can't be made visible; empty if there is none."""
    return next((device.id for device in devices if device.vendor == "amd" and device.order is None), "")


def visible_variables(devices: Sequence[GpuDevice], vendors: Collection[str]) -> dict[str, str]:
    """The variables for a process on the node, outside a container."""
    variables: dict[str, str] = {}
    seen = sorted(devices, key=_visible_rank)
    for vendor in sorted(set(vendors)):
        mine = [device for device in seen if device.vendor == vendor]
        # An index changes with MIG, behind an MPS daemon, or if another GPU is partitioned or lost; a UUID does not.
        listed = ",".join(device.uuid or str(device.order) for device in mine) or NO_DEVICE
        if vendor == "nvidia":
            variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": listed}
        elif vendor == "amd":
            # A process whose devices are not known for certain sees none, rather than another pod's.
            visible = NO_DEVICE if first_without_order(mine) else listed
            # HIP numbers what ROCr leaves visible, so its list starts at 0.
            again = ",".join(map(str, range(len(mine)))) or NO_DEVICE
            variables |= {"ROCR_VISIBLE_DEVICES": visible, "HIP_VISIBLE_DEVICES": again}
    return variables


def _visible_rank(device: GpuDevice) -> tuple[str, int]:
    """The order in which a process numbers its devices, for masks and limits: by KFD node or index, then the others."""
    return device.vendor, next((number for number in (device.node, device.order) if number is not None), 1 << 30)


def with_current_devices(grant: Grant, devices: Mapping[str, GpuDevice]) -> Grant | None:
    """The grant with the current indices of its devices; None if one is gone or partitioned differently."""
    held = []
    for one in grant.held:
        now = devices.get(one.device.id)
        if now is None or _mask_basis(now) != _mask_basis(one.device):
            return None
        held.append(replace(one, device=now))
    return replace(grant, held=tuple(_in_visible_order(held)))


def uses_device(grant: Grant, device: GpuDevice) -> bool:
    return any(one.device.id == device.id for one in grant.held)


def _in_visible_order(held: Sequence[GrantedDevice]) -> list[GrantedDevice]:
    return sorted(held, key=lambda one: _visible_rank(one.device))


def _mask_basis(device: GpuDevice) -> tuple[object, ...]:
    return device.vendor, device.uuid, device.is_partition, device.compute_units, device.xcds


def _make_grant(
    request: GrantRequest, choice: IsolationChoice, held: Sequence[GrantedDevice], grants: Collection[Grant]
) -> Grant | Refusal:
    notes = [choice.note]
    if choice.method == "cu-mask":
        held = [
            replace(one, units=choose_units(one.device, one.milli, _taken_units(one.device, grants))) for one in held
        ]
        full = [one.device.id for one in held if not one.units]
        if full:
            return Refusal(f"{full[0]} has too few free compute units for {request.owner}; wait until another pod ends")
    for one in held:
        others = [grant for grant in grants if uses_device(grant, one.device)]
        notes.append(oversubscription(one.device.vendor, 1 + len(others)))
        if choice.method != "time-slicing" and any(other.method == "time-slicing" for other in others):
            notes.append(f"another pod on {one.device.id} is time-sliced and has no limits")
    return Grant(request.owner, choice.method, choice.grade, tuple(held), "; ".join(filter(None, notes)))


def _taken_units(device: GpuDevice, grants: Collection[Grant]) -> set[int]:
    held = (one for grant in grants for one in grant.held if one.device.id == device.id)
    return {unit for one in held for unit in one.units}


class GrantStore:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def load(self) -> tuple[dict[str, Grant], list[str]]:
        found: dict[str, Grant] = {}
        problems = []
        for name in sorted(name for name in os.listdir(self.folder) if name.endswith(SUFFIX)):
            try:
                with open(os.path.join(self.folder, name), "rb") as file:
                    grant = msgspec.json.decode(file.read(), type=Grant)
            except (OSError, msgspec.MsgspecError) as error:
                problems.append(f"{name} is not a grant: {error}")
                continue
            found[grant.owner] = grant
        return found, problems

    def save(self, grant: Grant) -> None:
        write_atomically(self._path(grant.owner), msgspec.json.encode(grant))

    def delete(self, owner: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(owner))

    def _path(self, owner: str) -> str:
        """Owners such as `team/train main-0` are hashed, since they are not file names."""
        return os.path.join(self.folder, hashlib.sha256(owner.encode()).hexdigest()[:24] + SUFFIX)
