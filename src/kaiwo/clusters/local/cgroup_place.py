"""Find out where Kaiwo may make cgroups for its runs. Changes nothing.

In:    how cgroups are mounted, and in which of them Kaiwo runs.   Out: folders, or why there are none and what to do.

In v1 the groups go below Kaiwo's own. In v2 a cgroup with processes cannot have children with limits, so they go below
the cgroup that systemd delegated to Kaiwo, the root of the hierarchy, or Kaiwo's own cgroup, which it then must leave.
"""

import contextlib
import os
from typing import NamedTuple

from kaiwo.clusters.local.run_cgroup import processes, read

CONTROLLERS = ("memory", "pids", "cpu")
DELEGATED = ("user.delegate", "trusted.delegate")  # systemd marks cgroups that are not its own any more

USE_SYSTEMD = (
    "start it with: systemd-run --user --scope -p Delegate=yes kaiwo up (as a service: see docs/troubleshooting.md)"
)
ENABLE_MEMORY = "enable the kernel's memory controller for Kaiwo's cgroup (see docs/troubleshooting.md)"
USE_ROOT = "start kaiwo up as root, or boot this machine with cgroup v2"
USE_CONTAINER = "give the container a writable cgroup of its own (see docs/troubleshooting.md)"


class Hierarchy(NamedTuple):
    """A tree of cgroups, and the folder in it below which Kaiwo makes its own."""

    base: str
    controllers: tuple[str, ...]  # that limit runs here; none: it only holds their processes together
    is_unified: bool  # cgroup v2


class Mount(NamedTuple):
    point: str
    own: str  # the folder of Kaiwo's own cgroup
    controllers: tuple[str, ...]
    is_unified: bool


class Choice(NamedTuple):
    """Where the cgroups of runs can be; without any, why not."""

    hierarchies: tuple[Hierarchy, ...] = ()
    must_move: bool = False  # Kaiwo must leave its own cgroup first
    why_not: str = ""
    remedy: str = ""  # what to do if there is no place, or if it turns out not to work


def choose_place(proc: str = "/proc", is_root: bool | None = None) -> Choice:
    """Where Kaiwo may make cgroups. Changes nothing."""
    is_root = os.geteuid() == 0 if is_root is None else is_root
    mounts = _mounts(proc)
    unified = next((each for each in mounts if each.is_unified), None)
    legacy = [each for each in mounts if not each.is_unified and set(CONTROLLERS) & set(each.controllers)]
    if not mounts:
        return Choice(why_not="this machine has no cgroups that Kaiwo can see", remedy=USE_CONTAINER)
    if not legacy and unified is not None:
        return _choose_unified(unified, is_root, proc)
    usable = [each for each in legacy if _may_write(each.own)]
    if not any("memory" in each.controllers for each in usable):
        names = ", ".join(each.own for each in legacy if "memory" in each.controllers) or "memory"
        remedy = USE_CONTAINER if is_root else USE_ROOT
        return Choice(why_not=f"Kaiwo may not make cgroups in {names}", remedy=remedy)
    hierarchies = [Hierarchy(each.own, each.controllers, False) for each in usable]
    if unified is not None and _may_write(unified.own):
        hierarchies.append(Hierarchy(unified.own, (), True))  # here the kernel kills all processes at once
    return Choice(tuple(hierarchies), remedy=ENABLE_MEMORY)


def _choose_unified(mount: Mount, is_root: bool, proc: str) -> Choice:
    parent = os.path.dirname(mount.own)
    is_below = mount.own.rstrip("/") != mount.point.rstrip("/")
    if is_below and _is_delegated(parent) and _may_write(parent) and not read(parent, "cgroup.procs").split():
        return _unified(parent)
    if is_root and _may_write(mount.point) and (not _is_namespace_root(mount.point) or _has_controllers(mount.point)):
        return _unified(mount.point)
    if not _may_write(mount.own) or not _may_write(os.path.join(mount.own, "cgroup.subtree_control")):
        remedy = USE_CONTAINER if is_root else USE_SYSTEMD
        return Choice(why_not=f"Kaiwo may not make cgroups in {mount.own}", remedy=remedy)
    if others := _strangers(mount.own, proc):
        why = f"other processes (such as {min(others)}) are in Kaiwo's own cgroup {mount.own}"
        return Choice(why_not=why, remedy=USE_CONTAINER if is_root else USE_SYSTEMD)
    return _unified(mount.own)._replace(must_move=True)


def _unified(base: str) -> Choice:
    available = read(base, "cgroup.controllers").split()
    if "memory" not in available:
        return Choice(why_not=f"the memory controller is not delegated to {base}", remedy=USE_SYSTEMD)
    return Choice(
        (Hierarchy(base, tuple(each for each in CONTROLLERS if each in available), True),), remedy=ENABLE_MEMORY
    )


def _is_namespace_root(point: str) -> bool:
    """The root of all has no cgroup.events; the root of a container's namespace is a cgroup like others."""
    return os.path.exists(os.path.join(point, "cgroup.events"))


def _has_controllers(folder: str) -> bool:
    return {"memory", "pids"} <= set(read(folder, "cgroup.subtree_control").split())


def _is_delegated(folder: str) -> bool:
    for name in DELEGATED:
        with contextlib.suppress(OSError, AttributeError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _may_write(path: str) -> bool:
    return os.access(path, os.W_OK)


def _strangers(folder: str, proc: str) -> set[int]:
    """The processes there that are neither this one nor its descendants."""
    found = processes(folder)
    return {pid for pid in found if not descends_from(pid, os.getpid(), proc)}


def descends_from(pid: int, ancestor: int, proc: str) -> bool:
    while pid > 1 and pid != ancestor:
        fields = read(os.path.join(proc, str(pid)), "stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return pid == ancestor


def _mounts(proc: str) -> list[Mount]:
    """The mounted hierarchies in which this process is, each with its own cgroup there."""
    own: dict[str, str] = {}
    for line in read(os.path.join(proc, "self"), "cgroup").splitlines():
        _, controllers_here, path_here = line.split(":", 2)
        own |= dict.fromkeys(controllers_here.split(","), path_here)
    found = []
    for line in read(os.path.join(proc, "self"), "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = [*right.split(" ", 2), "", ""][:3]
        root, point = (left.split()[index].replace("\\040", " ") for index in (3, 4))
        controllers = tuple(each for each in options.split(",") if each in own and each in CONTROLLERS)
        if kind != "cgroup2" and not (kind == "cgroup" and controllers):
            continue
        path = own.get("" if kind == "cgroup2" else controllers[0])
        if path is None or not f"{path}/".startswith(root.rstrip("/") + "/"):
            continue  # this process is outside what is mounted here
        folder = os.path.normpath(point + "/" + path[len(root.rstrip("/")) :])
        found.append(Mount(point, folder, controllers, kind == "cgroup2"))
    return found
