"""Where Kaiwo makes cgroups: the choice on made-up machines of every kind, and what it writes there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kaiwo.clusters.local.cgroup_place import Choice, choose_place
from kaiwo.clusters.local.cgroups import RunCgroups, default_max_processes, find_cgroups
from kaiwo.clusters.local.run_cgroup import RunCgroup, read
from tests.cli.test_strangers import BECOME, NOBODY, needs_root
from tests.conftest import ROOT


class Machine:
    """A folder with a /proc, and with cgroups that are mounted below it."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self._own: list[str] = []
        self._mounts: list[str] = ["22 1 0:21 / /proc rw,nosuid - proc proc rw"]

    def unified(self, own: str, *, controllers: str = "cpu io memory pids", at: str = "", root: str = "/") -> Path:
        """cgroup v2, with Kaiwo's own cgroup in it."""
        self._mounts.append(f"30 1 0:26 {root} {self.cgroups}{at} rw - cgroup2 cgroup2 rw,nsdelegate")
        self._own.append(f"0::{own}")
        folder = Path(f"{self.cgroups}{at}{own.removeprefix(root.rstrip('/'))}")
        for each in (Path(f"{self.cgroups}{at}"), folder):
            self.make(each, controllers)
        return folder

    def legacy(self, controllers: str, own: str) -> Path:
        """A hierarchy of cgroup v1."""
        point = self.cgroups / controllers
        self._mounts.append(f"31 1 0:27 / {point} rw,relatime - cgroup cgroup rw,{controllers}")
        self._own.append(f"{len(self._own) + 1}:{controllers}:{own}")
        folder = Path(f"{point}{own}")
        folder.mkdir(parents=True)
        return folder

    def make(self, folder: Path, controllers: str, *pids: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.subtree_control").touch()
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def choice(self, is_root: bool = True) -> Choice:
        (self.proc / "self/cgroup").write_text("".join(f"{line}\n" for line in self._own))
        (self.proc / "self/mountinfo").write_text("".join(f"{line}\n" for line in self._mounts))
        return choose_place(str(self.proc), is_root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def bases(choice: Choice) -> list[str]:
    return [each.base for each in choice.hierarchies]


def test_root_on_v2_uses_the_root_of_the_hierarchy(machine: Machine) -> None:
    machine.unified("/user.slice/session-1.scope")
    choice = machine.choice()
    assert (bases(choice), choice.must_move, choice.why_not) == ([str(machine.cgroups)], False, "")
    assert choice.hierarchies[0].controllers == ("memory", "pids", "cpu")


def test_a_service_with_a_delegated_cgroup_stays_in_it(machine: Machine) -> None:
    """systemd puts Kaiwo into a child (DelegateSubgroup=) of the cgroup that it delegates."""
    own = machine.unified("/system.slice/kaiwo.service/main")
    machine.make(own.parent, "memory pids")
    try:
        os.setxattr(own.parent, "user.delegate", b"1")
    except OSError:
        pytest.skip("the file system of this test has no extended attributes")
    for is_root in (True, False):
        choice = machine.choice(is_root)
        assert (bases(choice), choice.must_move) == ([str(own.parent)], False)


def test_without_root_kaiwo_leaves_its_own_cgroup_if_it_is_alone_there(machine: Machine) -> None:
    own = machine.unified("/user.slice/user@1000.service/run-1.scope", controllers="memory pids")
    machine.make(own, "memory pids", os.getpid())
    choice = machine.choice(is_root=False)
    assert (bases(choice), choice.must_move) == ([str(own)], True)
    machine.make(own, "memory pids", os.getpid(), os.getppid())
    choice = machine.choice(is_root=False)
    assert f"other processes (such as {os.getppid()}) are in Kaiwo's own cgroup" in choice.why_not
    assert "systemd-run --user --scope" in choice.remedy


@pytest.mark.parametrize(
    ("is_root", "remedy"), [(True, "give the container a writable cgroup"), (False, "systemd-run --user --scope")]
)
def test_a_cgroup_that_cannot_be_written_is_no_place(machine: Machine, is_root: bool, remedy: str) -> None:
    machine.unified("/kaiwo.scope", at="/nowhere")
    for folder in (machine.cgroups / "nowhere/kaiwo.scope", machine.cgroups / "nowhere"):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    choice = machine.choice(is_root)
    assert not choice.hierarchies
    assert "may not make cgroups in" in choice.why_not
    assert remedy in choice.remedy


def test_without_the_memory_controller_memory_is_a_promise(machine: Machine) -> None:
    machine.unified("/", controllers="cpu pids")
    assert "the memory controller is not delegated" in machine.choice().why_not


def test_v1_uses_the_own_cgroup_of_each_controller(machine: Machine) -> None:
    machine.legacy("memory", "/jobs")
    machine.legacy("pids", "/")
    machine.legacy("cpu,cpuacct", "/")
    machine.legacy("freezer", "/")
    machine.unified("/", controllers="", at="/unified")
    choice = machine.choice()
    names = ["memory/jobs", "pids", "cpu,cpuacct", "unified"]
    assert bases(choice) == [str(machine.cgroups / name) for name in names]
    assert [each.controllers for each in choice.hierarchies] == [("memory",), ("pids",), ("cpu",), ()]


def test_v1_without_rights_says_what_to_do(machine: Machine) -> None:
    machine.legacy("memory", "/jobs").rmdir()
    choice = machine.choice(is_root=False)
    assert "may not make cgroups in" in choice.why_not
    assert "as root" in choice.remedy


def test_a_container_sees_its_own_part_of_the_hierarchy(machine: Machine) -> None:
    """Without a cgroup namespace, the mount begins at the container's cgroup, and so does its path."""
    machine.unified("/docker/abc", root="/docker/abc")
    assert bases(machine.choice()) == [str(machine.cgroups)]
    machine._own = ["0::/docker/other"]
    assert not machine.choice().hierarchies


def test_a_machine_without_cgroups_says_so(tmp_path: Path) -> None:
    choice = choose_place(str(tmp_path / "none"))
    assert choice.why_not == "this machine has no cgroups that Kaiwo can see"
    assert find_cgroups(str(tmp_path), proc=str(tmp_path / "none")).make("a", 100, 1000) == ()


def files_of(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()


def test_v2_gets_every_limit_in_one_folder(machine: Machine) -> None:
    machine.unified("/")
    (hierarchy,) = machine.choice().hierarchies
    cgroups = RunCgroups([hierarchy], "home", 500, promise="")
    (path,) = cgroups.folders_of("run")
    names = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight")
    files_of(Path(path), *names)
    assert cgroups.make("run", 4096, 2500) == (path,)
    assert [read(path, name) for name in names] == [str(4 << 30), "0", "1", "500", "250"]


def test_v1_gets_each_limit_in_the_folder_of_its_controller(machine: Machine) -> None:
    for each in ("memory", "pids", "cpu"):
        machine.legacy(each, "/")
    cgroups = RunCgroups(machine.choice().hierarchies, "home", 500, promise="")
    memory, pids, cpu = map(Path, cgroups.folders_of("run"))
    files_of(memory, "memory.limit_in_bytes")  # without swap accounting
    files_of(pids, "pids.max")
    files_of(cpu, "cpu.shares")
    assert len(cgroups.make("run", 4096, 2500)) == 3
    assert (memory / "memory.limit_in_bytes").read_text() == str(4 << 30)
    assert (pids / "pids.max").read_text() == "500"
    assert (cpu / "cpu.shares").read_text() == "2560"


def test_a_run_does_not_start_without_the_limit_that_it_was_promised(machine: Machine) -> None:
    machine.legacy("memory", "/")
    cgroups = RunCgroups(machine.choice().hierarchies, "home", 500, promise="")
    files_of(Path(*cgroups.folders_of("run")))
    with pytest.raises(OSError, match=r"memory\.limit_in_bytes"):
        cgroups.make("run", 4096, 0)


def test_what_the_kernel_measured_is_read_from_both_versions(tmp_path: Path) -> None:
    two, one = tmp_path / "v2", tmp_path / "v1"
    files_of(two)
    files_of(one)
    (two / "memory.peak").write_text("1048577\n")
    (two / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    (one / "memory.max_usage_in_bytes").write_text("4194304\n")
    (one / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    v2, v1, none = RunCgroup([str(two)]), RunCgroup([str(one)]), RunCgroup([str(tmp_path / "gone")])
    assert [(each.peak_mib(), each.oom_kills()) for each in (v2, v1, none)] == [(2, 2), (4, 7), (0, 0)]
    assert none.is_empty()


def test_names_are_short_whatever_the_home_is_called(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine")
    machine.unified("/")
    machine.choice()
    names = set()
    for home in ("/a", "/" + "very-long/" * 400):
        cgroups = find_cgroups(home, proc=str(machine.proc))
        (folder,) = cgroups.folders_of("0123456789ab")
        names.add(Path(folder).parent.name)
        assert len(os.path.relpath(folder, machine.cgroups)) < 40
    assert len(names) == 2


@pytest.mark.parametrize(
    ("pid_max", "threads", "limit"), [(32768, 190000, 8192), (4194304, 1000000, 32768), (2000, 9, 1024)]
)
def test_the_default_limit_of_processes_leaves_room_for_others(
    tmp_path: Path, pid_max: int, threads: int, limit: int
) -> None:
    files_of(tmp_path / "sys/kernel")
    (tmp_path / "sys/kernel/pid_max").write_text(f"{pid_max}\n")
    (tmp_path / "sys/kernel/threads-max").write_text(f"{threads}\n")
    assert default_max_processes(str(tmp_path)) == limit


DELEGATE = (
    """
from kaiwo.clusters.local.cgroups import find_cgroups
from kaiwo.clusters.local.run_cgroup import RunCgroup
"""
    + BECOME.replace("import os", "import os, signal").replace(
        "if user:",
        "open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))\nif user:",
    )
    + """
cgroups = find_cgroups("/home/of/nobody", 20)
assert not cgroups.promise, cgroups.promise
run = RunCgroup(cgroups.make("run", 64, 1000))
if (pid := os.fork()) == 0:
    run.enter()
    bytearray(256 << 20)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
assert (run.oom_kills(), 48 <= run.peak_mib() <= 64, run.is_empty(), run.remove()) == (1, True, True, True)
print("confined", open("/proc/self/cgroup").read())
"""
)


@needs_root
def test_a_user_without_rights_confines_runs_in_a_delegated_cgroup() -> None:
    group = Path("/sys/fs/cgroup") / f"kaiwo-test-{os.getpid()}"
    if "memory" not in read("/sys/fs/cgroup", "cgroup.subtree_control").split() or not os.access(group.parent, os.W_OK):
        pytest.skip("this machine has no cgroup v2 with the memory controller")
    group.mkdir()
    try:
        for name in (".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
            os.chown(group / name, NOBODY, NOBODY)
        command = [sys.executable, "-c", DELEGATE, str(NOBODY), str(group)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("confined")
        assert "kaiwo-main" in done.stdout
    finally:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
