"""Cap device memory with the `dmem` controller of cgroup v2 (Linux 6.14 and later).

Never: changes a cgroup that it did not create.
"""

import os

from kaiwo.model.errors import ClusterError

ROOT = "/sys/fs/cgroup"
OURS = "kaiwo"


def regions(root: str = ROOT) -> tuple[str, ...]:
    """The memory regions that can be capped, such as `drm/0000:05:00.0/vram`; empty without controller or rights."""
    if not os.access(os.path.join(root, "cgroup.subtree_control"), os.W_OK):
        return ()
    try:
        with open(os.path.join(root, "dmem.capacity"), encoding="utf-8") as file:
            return tuple(words[0] for line in file if len(words := line.split()) == 2)
    except OSError:
        return ()


def make_group(name: str, caps_mib: dict[str, int], root: str = ROOT) -> str:
    top = os.path.join(root, OURS)
    folder = os.path.join(top, name)
    try:
        _enable(root)
        os.makedirs(top, exist_ok=True)
        _enable(top)
        os.makedirs(folder, exist_ok=True)
        for region, mib in sorted(caps_mib.items()):
            _write(os.path.join(folder, "dmem.max"), f"{region} {mib << 20}")
    except OSError as error:
        raise ClusterError(f"the kernel does not cap device memory for {name}: {error}") from error
    return folder


def remove_group(folder: str) -> None:
    """Remove a cgroup; one that still has processes stays, and is removed at the next start."""
    try:
        os.rmdir(folder)
    except OSError:
        return


def _enable(folder: str) -> None:
    _write(os.path.join(folder, "cgroup.subtree_control"), "+dmem")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
