"""Prepare the GPU devices of a pod before its process starts, and release them after it ends.

Never: gives one compute unit to two masks; loses a grant when Kaiwo is killed.
`GpuSharing.prepare` may wait about 20 ms for a daemon: call it from a thread.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Collection

from msgspec.structs import replace

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing import dmem_cgroup
from kaiwo.devices.sharing.grants import (
    GrantStore,
    decide_grant,
    first_without_order,
    grant_environment,
    uses_device,
    with_current_devices,
)
from kaiwo.devices.sharing.isolation_method import dmem_region
from kaiwo.devices.sharing.mps import (
    DEFAULT,
    EXCLUSIVE_PROCESS,
    MpsDaemon,
    client_milli,
    find_mps_control,
    serves_all_users,
    set_compute_mode,
)
from kaiwo.devices.sharing.share_types import Grant, GrantRequest, IsolationSupport, Refusal, devices_by_id
from kaiwo.model.errors import ClusterError

NOT_ENFORCED = "a process that removes its MPS variables can use the whole GPU: only root can set the compute mode"
ONE_USER_AT_A_TIME = (
    "this driver's MPS serves one user at a time: processes of another user wait until the first user's have ended; "
    "run the pods of one GPU as one user, or update the driver"
)
UNKNOWN_ORDER = (
    "ROCr's index of {} is unknown, because part of the driver's topology can't be read, "
    "and a wrong index would be another pod's GPU; run kaiwo discover to see which part"
)


def detect_isolation_support(in_containers: bool = False, may_use_mps: bool = True) -> IsolationSupport:
    """`may_use_mps`: False where we have no right to start MPS daemons, whatever is installed."""
    control = find_mps_control() if may_use_mps else ""
    return IsolationSupport(
        mps_control=control, dmem_regions=dmem_cgroup.regions(), in_containers=in_containers, may_use_mps=may_use_mps
    )


class GpuSharing:
    def __init__(
        self,
        folder: str,
        inventory: Inventory,
        platform: IsolationSupport | None = None,
        in_containers: bool = False,
        may_use_mps: bool = True,
    ) -> None:
        self._in_containers = in_containers  # a container numbers only the devices that it was given
        self.folder = os.path.abspath(folder)
        # The daemons' sockets in it are open to all users: those who get here are the ones it is mounted for.
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        os.chmod(self.folder, 0o700)
        self._is_platform_given = platform is not None
        self._may_use_mps = may_use_mps
        detected = platform or detect_isolation_support(may_use_mps=may_use_mps)
        self.platform = replace(detected, in_containers=in_containers)
        self._devices = devices_by_id(inventory)
        self._records = GrantStore(os.path.join(self.folder, "grants"))
        self._grants, self.notes = self._records.load()
        self._lock = threading.RLock()  # the agent prepares on the kubelet's threads and maintains daemons on its own

    @property
    def grants(self) -> tuple[Grant, ...]:
        with self._lock:
            return tuple(self._grants.values())

    def refresh(self, inventory: Inventory) -> None:
        """Use a new inventory: devices or their indices have changed."""
        platform = self.platform
        if not self._is_platform_given:
            platform = detect_isolation_support(self._in_containers, self._may_use_mps)
        with self._lock:
            self._devices, self.platform = devices_by_id(inventory), platform

    def missing_device(self, owner: str) -> str:
        """A granted device of this owner that the machine no longer has; empty if there is none."""
        with self._lock:
            grant = self._grants.get(owner)
            ids = [one.device.id for one in grant.held] if grant is not None else []
            return next((name for name in ids if name not in self._devices), "")

    def prepare(self, request: GrantRequest, never_concurrent: Collection[str] = ()) -> Grant | Refusal:
        """Grant the devices; an owner that has a grant gets it again if it is still valid.

        `never_concurrent`: owners that never run at the same time as this one, so that they may share its units.
        """
        with self._lock:
            known = self._grants.get(request.owner)
            decided: Grant | Refusal | None = with_current_devices(known, self._devices) if known is not None else None
            if decided is None:
                self.release(request.owner)
                beside = [grant for owner, grant in self._grants.items() if owner not in never_concurrent]
                decided = decide_grant(request, self._devices, self.platform, beside)
            if isinstance(decided, Refusal):
                return decided
            unknown = "" if self._in_containers else first_without_order([one.device for one in decided.held])
            if unknown:
                return Refusal(UNKNOWN_ORDER.format(unknown))
            if decided == known:
                self._ensure_daemon(decided)
                return decided
            return self._apply(decided)

    def release(self, owner: str) -> None:
        """Release the grant of an ended process; the last client of an MPS daemon stops it."""
        with self._lock:
            grant = self._grants.pop(owner, None)
            if grant is None:
                return
            if grant.cgroup:
                dmem_cgroup.remove_group(grant.cgroup)
            if grant.method == "mps":
                self._release_client(grant)
            self._set_compute_modes(grant)
            self._records.delete(owner)

    def rename(self, owner: str, new_owner: str) -> None:
        """Give a grant to another owner. If that owner has one too, they swap."""
        with self._lock:
            if owner == new_owner:
                return
            grant, other = self._grants.pop(owner, None), self._grants.pop(new_owner, None)
            for name, kept in ((new_owner, grant), (owner, other)):
                self._records.delete(name)
                if kept is not None:
                    self._grants[name] = replace(kept, owner=name)
                    self._records.save(self._grants[name])

    def release_others(self, owners: Collection[str]) -> None:
        """Release the grants of all other owners, after a restart."""
        with self._lock:
            for owner in set(self._grants) - set(owners):
                self.release(owner)

    def maintain_daemons(self) -> list[str]:
        """Restart MPS daemons that are gone; return one line for each."""
        done = []
        with self._lock:
            clients = [grant for grant in self._grants.values() if grant.method == "mps"]
            for grant in {_gpu_uuids(grant): grant for grant in clients}.values():
                daemon = self.daemon_of(grant)
                try:
                    if daemon.ensure() != "kept":
                        self._limit_clients(grant)
                        done.append(f"the MPS daemon of {', '.join(daemon.uuids)} was gone and has been restarted")
                except ClusterError as error:
                    done.append(str(error))
        return done

    def daemon_of(self, grant: Grant) -> MpsDaemon:
        """The MPS daemon of a grant. Each set of GPUs has its own, since a client can use only one daemon."""
        uuids = _gpu_uuids(grant)
        name = hashlib.sha256(",".join(uuids).encode()).hexdigest()[:8]
        return MpsDaemon(os.path.join(self.folder, f"mps-{name}"), uuids, self.platform.mps_control)

    def _apply(self, decided: Grant) -> Grant:
        folder = self.daemon_of(decided).folder if decided.method == "mps" else ""
        vendors = {device.vendor for device in self._devices.values()}
        environment = grant_environment(decided, vendors, folder)
        grant = replace(decided, environment=environment, cgroup=self._make_cgroup(decided))
        # Stored first, so that a crash leaves no unknown daemon behind.
        self._store(grant)
        try:
            self._ensure_daemon(grant)
        except ClusterError:
            self.release(grant.owner)
            raise
        notes = [] if self._set_compute_modes(grant) else [NOT_ENFORCED]
        if grant.method == "mps" and self._in_containers and not serves_all_users(self.platform.mps_control):
            notes.append(ONE_USER_AT_A_TIME)
        if new := [note for note in notes if note not in grant.note]:
            grant = replace(grant, note="; ".join(filter(None, (grant.note, *new))))
            self._store(grant)
        return grant

    def _store(self, grant: Grant) -> None:
        self._records.save(grant)
        self._grants[grant.owner] = grant

    def _make_cgroup(self, grant: Grant) -> str:
        if grant.grade != "memory-capped":
            return ""
        caps = {dmem_region(one.device): one.mib for one in grant.held}
        return dmem_cgroup.make_group(hashlib.sha256(grant.owner.encode()).hexdigest()[:16], caps)

    def _ensure_daemon(self, grant: Grant) -> None:
        if grant.method == "mps":
            self.daemon_of(grant).ensure()
            self._limit_clients(grant)

    def _release_client(self, grant: Grant) -> None:
        """The last client of a daemon stops it; otherwise the limits are those of the clients that remain."""
        if not any(_same_gpus(grant, other) for other in self._grants.values()):
            self.daemon_of(grant).stop()
            return
        with contextlib.suppress(ClusterError):  # the daemon is gone: it gets its limits when it is started again
            self._limit_clients(grant)

    def _limit_clients(self, grant: Grant) -> None:
        """No client of the daemon gets more than the largest share that it serves, even without its variables."""
        clients = [other for other in self._grants.values() if _same_gpus(grant, other)]
        held = [one for client in clients for one in client.held]
        mib_by_uuid = {one.device.uuid: one.device.memory_mib for one in held}
        for uuid in mib_by_uuid:
            shares = [one.mib for one in held if one.device.uuid == uuid]
            if all(shares):  # a share without an amount of memory has no limit
                mib_by_uuid[uuid] = max(shares)
        limits = {uuid: mib for uuid, mib in mib_by_uuid.items() if mib}
        self.daemon_of(grant).limit_clients(max(client_milli(client.held) for client in clients), limits)

    def _set_compute_modes(self, grant: Grant) -> bool:
        """Reserve a GPU for MPS while all its pods are clients of one daemon; False if the mode could not be set."""
        is_done = True
        for one in grant.held:
            here = [other for other in self._grants.values() if uses_device(other, one.device)]
            if not any(other.method == "mps" for other in (*here, grant)) or not one.device.uuid.startswith("GPU-"):
                continue  # leave the administrator's mode alone
            is_guarded = bool(here) and all(other.method == "mps" and _same_gpus(other, here[0]) for other in here)
            is_done &= set_compute_mode(one.device.uuid, EXCLUSIVE_PROCESS if is_guarded else DEFAULT)
        return is_done


def _gpu_uuids(grant: Grant) -> tuple[str, ...]:
    return tuple(sorted(one.device.uuid for one in grant.held))


def _same_gpus(grant: Grant, other: Grant) -> bool:
    return other.method == "mps" and _gpu_uuids(grant) == _gpu_uuids(other)
