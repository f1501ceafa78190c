"""Shares from prepare to release: daemons, units, records, and a Kaiwo that is killed in between."""

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.container_spec import container_spec
from kaiwo.devices.agent.kubelet.device_plugin import allocate_response
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from kaiwo.devices.sharing import dmem_cgroup, mps, prepare_grants
from kaiwo.devices.sharing.mps import MpsDaemon, start_ticks
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import Grant, GrantRequest, IsolationSupport, Refusal
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Share
from tests.devices.fake_inventory import fake_inventory
from tests.devices.sharing.rocr_mask import parse_mask

CONTROL = Path(__file__).with_name("fake_mps_control.py")
NVIDIA = Inventory(
    "box",
    tuple(
        PhysicalGpu(f"0000:0{n}:00.0", "nvidia", "H200", order=n, serial=f"GPU-{n}", memory_mib=143_771)
        for n in range(2)
    ),
)
AMD = replace(
    fake_inventory("MI300X", 2),
    gpus=tuple(replace(gpu, vendor="amd", target="gfx942") for gpu in fake_inventory("MI300X", 2).gpus),
)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")  # short: sockets lie in it


@pytest.fixture
def control(tmp_path: Path) -> str:
    """With this Python: the one on the path may be another."""
    path = tmp_path / "control"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {CONTROL} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The compute modes that were set, instead of NVML's."""
    found: dict[str, int] = {}
    monkeypatch.setattr(prepare_grants, "set_compute_mode", lambda uuid, mode: not found.update({uuid: mode}))
    return found


@pytest.fixture
def nvidia(folder: Path, control: str, modes: dict[str, int]) -> Iterator[GpuSharing]:
    shares = GpuSharing(str(folder), NVIDIA, IsolationSupport(control))
    yield shares
    GpuSharing(str(folder), NVIDIA, IsolationSupport(control)).release_others(())


def ask(owner: str, milli: int, *gpus: str, **wish: object) -> GrantRequest:
    shares = tuple(Share(gpu, milli, 143_771 * milli // 1000) for gpu in gpus or ("0000:00:00.0",))
    return GrantRequest(owner, shares, **wish)  # type: ignore[arg-type]


def granted(found: Grant | Refusal) -> Grant:
    assert isinstance(found, Grant), found
    return found


def test_two_on_one_gpu_share_a_daemon_that_ends_with_the_last(nvidia: GpuSharing, modes: dict[str, int]) -> None:
    small, large = granted(nvidia.prepare(ask("small", 300))), granted(nvidia.prepare(ask("large", 700)))
    daemon = nvidia.daemon_of(small)
    assert daemon.is_answering()
    assert small.environment["CUDA_MPS_PIPE_DIRECTORY"] == large.environment["CUDA_MPS_PIPE_DIRECTORY"]
    assert small.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert daemon.send_command("environment") == "GPU-0"
    assert modes == {"GPU-0": 3}  # nobody goes around the service
    pid = daemon.pid
    nvidia.release("small")
    assert daemon.pid == pid
    nvidia.release("large")
    assert daemon.pid == 0
    assert modes == {"GPU-0": 0}
    nvidia.release("large")  # harmless


def serve(monkeypatch: pytest.MonkeyPatch, is_for_all: bool) -> None:
    """As root with a driver that serves all users, or as anybody else."""
    for module in (mps, prepare_grants):
        monkeypatch.setattr(module, "serves_all_users", lambda control: is_for_all)


def modes_of(folder: str) -> dict[str, str]:
    return {name: oct(os.stat(os.path.join(folder, name)).st_mode & 0o777) for name in (".", "pipe", "log", "..")}


@pytest.mark.parametrize("is_for_all", [True, False])
def test_a_daemon_of_root_serves_all_users_and_any_other_its_own_user(
    nvidia: GpuSharing, monkeypatch: pytest.MonkeyPatch, is_for_all: bool
) -> None:
    serve(monkeypatch, is_for_all)
    daemon = nvidia.daemon_of(granted(nvidia.prepare(ask("one", 300))))
    open_mode = "0o711" if is_for_all else "0o700"
    # Others get to the socket through a mount of the folder, and not through the folders above it.
    assert modes_of(daemon.folder) == {".": open_mode, "pipe": open_mode, "log": "0o700", "..": "0o700"}
    assert daemon.send_command("arguments") == ("-multiuser-server -d" if is_for_all else "-d")
    assert os.stat(f"{daemon.folder}/pipe/nvidia-cuda-mps-control.pid").st_mode & 0o077 == 0


def test_a_container_is_told_where_the_driver_serves_one_user_at_a_time(
    folder: Path, control: str, modes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, is_for_all=False)
    agent = GpuSharing(str(folder), NVIDIA, IsolationSupport(control), in_containers=True)
    try:
        assert "serves one user at a time" in granted(agent.prepare(ask("one", 300))).note
        serve(monkeypatch, is_for_all=True)
        assert granted(agent.prepare(ask("other", 300))).note == ""
    finally:
        agent.release_others(())


def test_whether_a_driver_serves_all_users_is_in_its_help(control: str, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho OPTIONS: -d\n")
    old.chmod(0o755)
    assert mps.serves_all_users(control) == (os.geteuid() == 0)
    assert not mps.serves_all_users(str(old))
    assert not mps.serves_all_users(str(tmp_path / "missing"))


def test_no_client_gets_more_than_the_largest_share_whatever_its_variables_say(nvidia: GpuSharing) -> None:
    daemon = nvidia.daemon_of(granted(nvidia.prepare(ask("small", 300))))
    assert limits(daemon) == {"threads": "30", "GPU-0": "43131M"}
    Path(daemon.folder, "serving").touch()  # a server runs: the daemon's defaults are for later ones
    granted(nvidia.prepare(ask("large", 700)))
    assert limits(daemon) == limits(daemon, "4711") == {"threads": "70", "GPU-0": "100639M"}
    nvidia.release("large")
    assert limits(daemon) == limits(daemon, "4711") == {"threads": "30", "GPU-0": "43131M"}


def test_a_daemon_that_was_started_again_has_its_limits(nvidia: GpuSharing) -> None:
    daemon = nvidia.daemon_of(granted(nvidia.prepare(ask("one", 300))))
    os.kill(daemon.pid, signal.SIGKILL)
    nvidia.maintain_daemons()
    assert limits(daemon) == {"threads": "30", "GPU-0": "43131M"}


def limits(daemon: MpsDaemon, server: str = "") -> dict[str, str]:
    """What the daemon was told last: for servers to come, or for one that runs."""
    middle = "" if server else "default_"
    told = [line.split() for line in (daemon.send_command("settings") or "").splitlines()]
    found = {}
    for command, *words, value in told:
        if words[:1] == ([server] if server else []) or (not server and "default" in command):
            if command == f"set_{middle}active_thread_percentage":
                found["threads"] = value
            elif command == f"set_{middle}device_pinned_mem_limit":
                found[words[-1]] = value
    return found


def test_containers_keep_their_way_to_a_daemon_that_was_started_again(nvidia: GpuSharing) -> None:
    grant = granted(nvidia.prepare(ask("one", 300)))
    mounted = os.stat(grant.environment["CUDA_MPS_PIPE_DIRECTORY"]).st_ino
    os.kill(nvidia.daemon_of(grant).pid, signal.SIGKILL)
    nvidia.maintain_daemons()
    assert os.stat(grant.environment["CUDA_MPS_PIPE_DIRECTORY"]).st_ino == mounted


def test_a_container_gets_the_socket_of_its_daemon_read_only_and_nothing_else(nvidia: GpuSharing) -> None:
    grant = granted(nvidia.prepare(ask("one", 300)))
    (mount,) = allocate_response(container_spec(grant, NVIDIA), grant).mounts
    assert (mount.host_path, mount.read_only) == (f"{nvidia.daemon_of(grant).folder}/pipe", True)


def test_gpus_have_daemons_of_their_own(nvidia: GpuSharing) -> None:
    one = granted(nvidia.prepare(ask("one", 300)))
    other = granted(nvidia.prepare(ask("other", 300, "0000:01:00.0")))
    both = granted(nvidia.prepare(ask("both", 300, "0000:01:00.0", "0000:00:00.0")))
    folders = {nvidia.daemon_of(grant).folder for grant in (one, other, both)}
    assert len(folders) == 3
    assert both.environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


def test_the_gpu_is_open_again_while_somebody_takes_turns(nvidia: GpuSharing, modes: dict[str, int]) -> None:
    granted(nvidia.prepare(ask("one", 300)))
    assert modes["GPU-0"] == 3
    granted(nvidia.prepare(ask("turns", 300, isolation="time-slicing")))
    assert modes["GPU-0"] == 0
    assert "is time-sliced and has no limits" in granted(nvidia.prepare(ask("late", 300))).note
    nvidia.release("turns")
    assert modes["GPU-0"] == 3
    granted(nvidia.prepare(ask("alone", 1000, "0000:01:00.0")))
    assert "GPU-1" not in modes  # whose mode is the administrator's


def test_without_root_the_grant_says_what_is_not_held(nvidia: GpuSharing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_grants, "set_compute_mode", lambda uuid, mode: False)
    grant = granted(nvidia.prepare(ask("one", 300)))
    assert "only root can set" in grant.note
    assert nvidia.grants == (grant,)
    assert granted(nvidia.prepare(ask("alone", 1000, "0000:01:00.0"))).note == ""


def test_a_killed_kaiwo_finds_its_daemon_again(nvidia: GpuSharing, folder: Path, control: str) -> None:
    grant = granted(nvidia.prepare(ask("one", 300)))
    pid = nvidia.daemon_of(grant).pid
    again = GpuSharing(str(folder), NVIDIA, IsolationSupport(control))
    assert again.grants == (grant,)
    assert again.maintain_daemons() == []
    assert granted(again.prepare(ask("one", 300))) == grant
    assert again.daemon_of(grant).pid == pid
    again.release_others(["one"])
    assert again.daemon_of(grant).pid == pid
    again.release_others(())
    assert again.daemon_of(grant).pid == 0
    assert not start_ticks(pid)


def test_a_daemon_that_crashed_is_started_again(nvidia: GpuSharing) -> None:
    grant = granted(nvidia.prepare(ask("one", 300)))
    daemon = nvidia.daemon_of(grant)
    before = daemon.pid
    os.kill(before, signal.SIGKILL)
    assert not daemon.is_answering()
    assert "was gone and has been restarted" in nvidia.maintain_daemons()[0]
    assert daemon.pid not in (0, before)
    assert daemon.is_answering()


def test_a_daemon_that_does_not_start_leaves_nothing_behind(folder: Path, control: str, modes: dict[str, int]) -> None:
    shares = GpuSharing(str(folder), NVIDIA, IsolationSupport(control))
    probe = granted(shares.prepare(ask("one", 300)))
    shares.release("one")
    (Path(shares.daemon_of(probe).folder) / "broken").touch()
    with pytest.raises(ClusterError, match=r"GPU-0 did not start: .*already running"):
        shares.prepare(ask("one", 300))
    assert shares.grants == ()
    assert GpuSharing(str(folder), NVIDIA, IsolationSupport(control)).grants == ()


def test_a_stranger_with_the_daemons_pid_is_not_killed(folder: Path, control: str) -> None:
    daemon = MpsDaemon(str(folder), ["GPU-0"], control)
    (folder / "daemon").write_text(f"{os.getpid()} 12345\n")
    assert daemon.pid == 0
    daemon.stop()


def test_a_folder_too_long_for_sockets_is_told(control: str) -> None:
    with pytest.raises(ClusterError, match="too long"):
        MpsDaemon("/" + "x" * 100, ["GPU-0"], control)


def test_masks_of_neighbours_never_overlap_whatever_comes_and_goes(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    draw = random.Random(7)
    free = {gpu.id: 1000 for gpu in AMD.gpus}
    living: dict[str, tuple[str, int]] = {}
    for step in range(200):
        if living and draw.random() < 0.45:
            owner = draw.choice(sorted(living))
            gpu, milli = living.pop(owner)
            free[gpu] += milli
            shares.release(owner)
            continue
        gpu = draw.choice(sorted(free))
        milli = draw.randrange(27, 600)
        if milli > free[gpu]:
            continue
        grant = granted(shares.prepare(ask(f"w{step}", milli, gpu)))
        living[grant.owner] = (gpu, milli)
        free[gpu] -= milli
        assert parse_mask(grant.environment["HSA_CU_MASK"]) == {0: frozenset(grant.held[0].units)}
        for name in free:
            units = [
                unit for one in shares.grants for held in one.held if held.device.id == name for unit in held.units
            ]
            assert len(units) == len(set(units))
    again = GpuSharing(str(folder), AMD, IsolationSupport())
    assert {grant.owner: grant for grant in again.grants} == {grant.owner: grant for grant in shares.grants}


def test_a_grant_keeps_its_units_when_its_device_has_another_number(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    name = AMD.gpus[1].id
    granted(shares.prepare(ask("first", 250, name)))
    before = granted(shares.prepare(ask("second", 250, name)))
    shares.release("first")
    shares.refresh(replace(AMD, gpus=(replace(AMD.gpus[1], order=0),)))
    after = granted(shares.prepare(ask("second", 250, name)))
    assert [grant.environment["ROCR_VISIBLE_DEVICES"] for grant in (before, after)] == ["1", "0"]
    assert after.held[0].units == before.held[0].units
    assert GpuSharing(str(folder), AMD, IsolationSupport()).grants == (after,)


def test_a_device_that_was_cut_otherwise_is_given_anew(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    name = AMD.gpus[0].id
    assert granted(shares.prepare(ask("job", 500, name))).environment["HSA_CU_MASK"] == "0:0-151"
    shares.refresh(replace(AMD, gpus=(replace(AMD.gpus[0], compute_units=80, xcds=1),)))
    assert granted(shares.prepare(ask("job", 500, name))).environment["HSA_CU_MASK"] == "0:0-39"
    shares.refresh(replace(AMD, gpus=()))
    assert shares.missing_device("job") == name
    gone = shares.prepare(ask("job", 500, name))
    assert isinstance(gone, Refusal)
    assert f"no device {name}" in gone.reason
    assert shares.grants == ()


def test_masks_count_devices_after_visible_devices(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    first, second = (gpu.id for gpu in AMD.gpus)
    granted(shares.prepare(ask("there", 250, second)))
    grant = granted(shares.prepare(ask("both", 500, second, first)))
    assert grant.environment["ROCR_VISIBLE_DEVICES"] == "0,1"
    assert grant.environment["HSA_CU_MASK"] == "0:0-151;1:72-223"  # the second one's first 72 units are taken
    alone = granted(shares.prepare(ask("alone", 250, second)))
    assert alone.environment["ROCR_VISIBLE_DEVICES"] == "1"
    assert alone.environment["HSA_CU_MASK"] == "0:224-295"


def test_the_twelfth_on_an_amd_gpu_hears_that_it_is_crowded(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    gpu = AMD.gpus[0].id
    notes = [granted(shares.prepare(ask(f"w{n}", 50, gpu))).note for n in range(12)]
    assert notes[:11] == [""] * 11
    assert "12 processes" in notes[11]


def test_capped_memory_comes_with_a_group(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.subtree_control").touch()
    monkeypatch.setattr(dmem_cgroup.make_group, "__defaults__", (str(tmp_path),))
    gpu = AMD.gpus[0]
    shares = GpuSharing(str(folder), AMD, IsolationSupport(dmem_regions=(f"drm/{gpu.pci}/vram",)))
    grant = granted(shares.prepare(GrantRequest("one", (Share(gpu.id, 500, 98_304),), least_grade="memory-capped")))
    assert grant.grade == "memory-capped"
    assert Path(grant.cgroup, "dmem.max").read_text() == f"drm/{gpu.pci}/vram {98_304 << 20}"
    other = shares.prepare(GrantRequest("two", (Share(AMD.gpus[1].id, 500, 98_304),), least_grade="memory-capped"))
    assert isinstance(other, Refusal)
    assert "dmem" in other.reason


def test_a_grant_that_goes_over_to_itself_is_still_on_record(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    shares.prepare(ask("one", 300, AMD.gpus[0].id))
    shares.rename("one", "one")
    assert [grant.owner for grant in GpuSharing(str(folder), AMD, IsolationSupport()).grants] == ["one"]


def test_who_never_runs_at_the_same_time_may_have_the_same_units(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    gpu = AMD.gpus[0].id
    first = granted(shares.prepare(ask("first", 600, gpu)))
    assert isinstance(shares.prepare(ask("other", 600, gpu)), Refusal)
    then = granted(shares.prepare(ask("then", 600, gpu), ["first"]))
    assert then.held[0].units == first.held[0].units
    assert not set(granted(shares.prepare(ask("third", 300, gpu))).held[0].units) & set(first.held[0].units)


def test_refusals_take_nothing(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    for wrong in (ask("a", 500, "0000:99:00.0"), ask("b", 500, AMD.gpus[0].id, isolation="mps")):
        assert isinstance(shares.prepare(wrong), Refusal)
    assert shares.grants == ()
    nothing = granted(shares.prepare(GrantRequest("cpu-only", ())))
    assert nothing.environment["ROCR_VISIBLE_DEVICES"] == "-1"


def test_records_that_cannot_be_read_are_told(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    granted(shares.prepare(ask("one", 500, AMD.gpus[0].id)))
    (folder / "grants" / "junk.json").write_text("{")
    again = GpuSharing(str(folder), AMD, IsolationSupport())
    assert [grant.owner for grant in again.grants] == ["one"]
    assert "junk.json is not a grant" in again.notes[0]


def test_grants_can_change_hands(folder: Path) -> None:
    shares = GpuSharing(str(folder), AMD, IsolationSupport())
    first, second = (granted(shares.prepare(ask(name, 300, AMD.gpus[0].id))) for name in ("a", "b"))
    shares.rename("a", "b")
    assert {grant.owner: grant.held for grant in shares.grants} == {"a": second.held, "b": first.held}
    shares.rename("a", "c")
    again = GpuSharing(str(folder), AMD, IsolationSupport())
    assert {grant.owner: grant.held for grant in again.grants} == {"c": second.held, "b": first.held}
