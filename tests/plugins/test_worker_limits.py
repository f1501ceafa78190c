"""What a confined plugin could take from the scheduler and the machine: time, memory, and the files of others."""

import asyncio
import re
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kaiwo.decide import decide
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.runtime.plugin_worker import confinement, plugin_set, worker_process
from kaiwo.runtime.plugin_worker.plugin_files import PluginFiles, plugin_in, read_files
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet
from kaiwo.runtime.plugin_worker.try_plugin import QUESTIONS, sample_view
from tests.plugins.sites import CODE, Site, running
from tests.plugins.test_plugin_set import place
from tests.worlds import World

# It answers as it should, until it has been asked a few times.
CLASS = """
import ctypes, mmap, os, select, struct, sys, time
import numpy as np
def worker_of():
    frame = sys._getframe()
    while "_tables" not in getattr(frame.f_locals.get("self"), "__dict__", {}):
        frame = frame.f_back
    return frame.f_locals["self"]
def good(nodes):
    return np.full(len(nodes), 500)
def refused(call, *arguments):
    return getattr(ctypes.pythonapi, call)(*arguments) < 0
class Favourite:
    name, version, weight, calls = "{name}", "1.0", 100, 0
    def score(self, view, want, nodes):
        self.calls += 1
        return good(nodes) if self.calls <= 2 else self.misbehave(view, nodes)
    def misbehave(self, view, nodes):
"""

ANSWERS_AHEAD = """
        worker = worker_of()
        data = sys.modules["kaiwo.runtime.plugin_worker.messages"].encode_array(good(nodes))
        worker._output.put(data)
        number = worker._number
        while True:
            os.write(worker._answers, struct.pack("<QBQ", number, 1, len(data)))
            number += 1
"""

# What it does, and what the report about it says.
DEEDS = {
    "answers-ahead": (ANSWERS_AHEAD, "answered before it was asked"),
    "reads-memory-that-nobody-filled": (
        "        np.frombuffer(worker_of()._input._map, np.uint8)[::4096].sum()\n        return good(nodes)",
        "was killed by SIGBUS",
    ),
    "changes-its-answer-while-it-is-read": (
        """
        worker = worker_of()
        worker._reply(good(nodes))
        while True:
            worker._output._map[:64] = os.urandom(64)
""",
        "did not answer|does not belong|returned|scored|raised",
    ),
    "makes-many-small-maps": (
        """
        kept = []
        while True:
            kept.append(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, 1 + 2 * (len(kept) % 2)))  # none are joined
""",
        "raised OSError|raised MemoryError|did not answer|SIG",
    ),
    "puts-limits-on-the-scheduler": (
        """
        parent, zero = os.getppid(), bytes(128)
        tried = [refused("syscall", 302, parent, 7, zero, 0), refused("sched_setaffinity", parent, 128, b"\\1" + zero),
                 refused("setpriority", 0, parent, 19), refused("syscall", 251, 1, parent, 0x6007),
                 refused("syscall", 448, 3, 0), refused("syscall", 312, parent, os.getpid(), 0, 0, 0)]
        raise RuntimeError("all refused" if all(tried) else f"possible: {tried}")
""",
        "raised RuntimeError: all refused|system call",
    ),
    "leaves-files-behind": (
        """
        paths = ["/tmp", "/dev/shm", "/var/tmp", os.path.dirname(__file__), "/run", "/proc/self"]
        made = [path for path in paths if not refused("open", f"{path}/kaiwo-left".encode(), os.O_CREAT | 1, 0o600)]
        made += [each for each in ("mkdir", "mkfifo") if not refused(each, b"/tmp/kaiwo-left", 0o700)]
        made += [each for each in ("link", "symlink", "rename") if not refused(each, b"/tmp", b"/tmp/kaiwo-left")]
        raise RuntimeError(f"made {made}")
""",
        r"raised RuntimeError: made \[\]",
    ),
    "looks-at-the-scheduler-in-proc": (
        """
        parent, place = os.getppid(), ctypes.create_string_buffer(200)
        paths = [f"/proc/{parent}/{name}" for name in ("environ", "mem", "maps", "cmdline", "fd/3", "task")]
        read = [path for path in paths if not refused("open", path.encode(), 0)]
        for path in (f"/proc/{parent}/{name}".encode() for name in ("cwd", "root", "fd/3")):
            read += [] if refused("readlink", path, place, 200) else [path]
        raise RuntimeError(f"read {read}")
""",
        r"raised RuntimeError: read \[\]",
    ),
    "answers-with-an-object-that-becomes-an-array": (
        """
        class Evil:
            def __array__(self, *arguments):
                os._exit(5)
            __array_interface__ = property(__array__)
            __len__ = __array__
        return Evil()
""",
        "raised TypeError",
    ),
    "answers-with-text": (
        "        return np.array(['500'] * len(nodes))", "returned what was not expected: an array of <U3",
    ),
    "answers-with-complex-numbers": (
        "        return good(nodes) * 1j", "returned what was not expected: an array of <c16",
    ),
    "answers-with-dates": (
        "        return good(nodes).astype('M8[s]')", "returned what was not expected: an array of <M8",
    ),
    "answers-with-records": (
        "        return np.zeros(len(nodes), [('a', np.int64)])", "returned what was not expected: an array of .V8",
    ),
    "answers-with-one-number": ("        return np.array(500)", "expected .* integers"),
}  # fmt: skip


def asked(plugins: PluginSet, times: int) -> list[tuple[str, str]]:
    """Cycles with new work in each; the notes of their plans. A plugin that is set aside costs no start."""
    world = World(nodes=4, plugins=plugins.registry)
    notes: list[tuple[str, str]] = []
    for number in range(times):
        world.submit(f"w{number}", gpus_each=1, cpu_milli=100 + number)
        plan = decide(world.snapshot(), DEFAULT_POLICY, plugins.registry)
        assert len(plan.starts) == 1, "a decision was lost"
        if plan.notes:
            notes += [(note.subject, note.detail) for note in plan.notes]
            plugins.set_aside(notes)
        world.after(plan)
    return notes


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", DEEDS)
def test_it_is_set_aside_by_name_and_takes_nothing_with_it(name: str, site: Site) -> None:
    deed, words = DEEDS[name]
    site.plugin(name, CLASS + deed)
    plugins = site.allow(name, deadlineMs=500).load()
    assert plugins.status(name).state == "active", plugins.status(name).detail
    ((blamed, detail),) = asked(plugins, 8)
    assert blamed == name
    assert re.search(words, detail), detail
    assert not Path("/tmp/kaiwo-left").exists()


@pytest.mark.timeout(60)
def test_who_reads_no_questions_does_not_stop_who_asks(site: Site, monkeypatch: Any) -> None:
    """Its answers come as fast as they are taken, and none of them too early: in the end the pipe to it is full."""
    site.plugin("eager", CLASS + ANSWERS_AHEAD)
    plugins = site.allow("eager", deadlineMs=10_000).load()
    worker = plugins._entries["eager"].worker
    assert worker is not None
    poll = worker._poll.poll
    monkeypatch.setattr(worker, "_poll", type("Poll", (), {"poll": lambda _, *ms: [] if ms == (0,) else poll(*ms)})())
    view, plugin = sample_view(4), plugins._entries["eager"].plugin

    def ask_many() -> None:
        for number in range(6_000):
            QUESTIONS["score"](plugin, view, number)

    with pytest.raises(PluginFaultError, match="answers questions that it has not read"):
        ask_many()


def shared_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssShmem:\s+(\d+)", status)[1]) // 1024  # type: ignore[index]


def test_the_memory_of_the_view_is_as_long_as_what_is_in_it(site: Site) -> None:
    """Before, a plugin with 16 MiB could take another 256 by reading what nobody had written."""
    code = (
        CLASS
        + "        np.frombuffer(worker_of()._input._map, np.uint8)[: 1 << 20 : 4096].sum()\n        return good(nodes)"
    )
    site.plugin("reader", code)
    plugins = site.allow("reader", memoryMib=64).load()
    assert asked(plugins, 5) == []
    worker = plugins._entries["reader"].worker
    assert worker is not None
    assert shared_mib(worker.pid) <= 2


MINES = """
        worker = worker_of()
        worker._reply(good(nodes))
        names = len(nodes)
        while True:
            if not select.select([worker._asks], [], [], 0)[0]:
                continue  # it computes here
            message = worker._next()
            worker._number = message.number
            if type(message).__name__ == "Define":
                worker._tables.define(message, worker._arrays(message))
                worker._answer(2, b"\\xc0")
            else:
                worker._reply(np.full((1 + len(message.more), names) if message.more else names, 500))
"""


@pytest.mark.timeout(120)
def test_who_computes_between_two_questions_is_set_aside(site: Site, monkeypatch: Any) -> None:
    """Every question is answered in time, and there are always new ones: it is busy, and not with them."""
    monkeypatch.setattr(plugin_set, "LOOK_S", 0.5)
    monkeypatch.setattr(worker_process, "UNASKED_MS", 100)
    site.plugin("miner", CLASS + MINES)
    plugins = site.allow("miner", deadlineMs=2_000).load()

    async def some_work() -> None:
        async with running(plugins, site.home) as kaiwo:
            number = 0
            while plugins.status("miner").state == "active":
                await kaiwo.submit(f"w{number}", takes_s=1)
                number += 1
                await asyncio.sleep(0.05)

    asyncio.run(some_work())
    assert re.fullmatch(r"computed for \d+ ms while nobody asked it", plugins.status("miner").last_fault)
    assert plugins.status("miner").calls > 5


ORDER_OF_A_SET = CODE.replace(
    "1000 * (view.nodes.names[row] == self.config.best)", "200 * list({'a', 'b', 'c', 'd', 'e'}).index('abcde'[row])"
)


def test_every_worker_goes_through_a_set_in_the_same_order(site: Site) -> None:
    """A replay asks another worker than the cycle did."""
    site.plugin("favourite", ORDER_OF_A_SET)
    site.allow("favourite")
    assert len({place(site.load()) for _ in range(5)}) == 1


INSTALLED_BESIDE_PYTHON = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*-packages/*/__init__.py"))


@pytest.mark.skipif(not INSTALLED_BESIDE_PYTHON, reason="nothing is installed in the folder of this Python")
@pytest.mark.parametrize("how", ["import", "open"])
def test_packages_in_pythons_own_folder_cannot_be_read(how: str, site: Site) -> None:
    """No hash covers them, and anybody may exchange them."""
    package = INSTALLED_BESIDE_PYTHON[0].parent
    code = {
        "import": f"import sys\nsys.path.append({str(package.parent)!r})\nimport {package.name}\n",
        "open": f"import ctypes\nif ctypes.pythonapi.open({str(package / '__init__.py').encode()!r}, 0) < 0:\n"
        "    raise RuntimeError('the kernel refused it')\n",
    }[how]
    site.plugin("favourite", code + CODE)
    status = site.allow("favourite").load().status("favourite")
    assert status.state == "refused"
    assert re.search({"import": "tried to open", "open": "the kernel refused it"}[how], status.detail), status.detail


def test_all_that_plugins_may_import_can_be_imported(site: Site) -> None:
    """What is closed to plugins lies beside what they need."""
    names = (
        "json, decimal, ssl, sqlite3, zoneinfo, xml.etree.ElementTree, numpy.linalg, numpy.ma, msgspec.json, asyncio"
    )
    site.plugin("favourite", f"import {names}\n" + CODE)
    plugins = site.allow("favourite").load()
    assert plugins.status("favourite").detail == ""
    assert place(plugins) == "node-1"


def test_who_imports_when_it_is_asked_is_told_where_imports_belong(site: Site) -> None:
    site.plugin("late", CLASS + "        import wave\n        return good(nodes)")
    plugins = site.allow("late").load()
    ((_, detail),) = asked(plugins, 4)
    assert re.search(r"tried to open .*wave.* while it was asked; import modules .* when the module is loaded", detail)


def test_a_worker_with_several_threads_is_not_called_fully_confined() -> None:
    """Landlock and seccomp would hold for one of them."""
    with pytest.raises(OSError, match="several threads"):
        confinement._restrict_files((), ())  # the test's own process has some: nothing is restricted


def test_a_path_file_and_an_archive_in_the_package_are_hashed_and_run_nothing(site: Site) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    (folder / "evil.pth").write_text("import os; os._exit(3)\n")
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        archive.writestr("sitecustomize.py", "import os; os._exit(3)")
    plugins = site.allow("favourite").load()
    assert place(plugins) == "node-1"
    with zipfile.ZipFile(folder / "more.zip", "a") as archive:
        archive.writestr("other.py", "")
    assert "does not allow" in site.load().status("favourite").detail


def test_files_that_change_after_they_were_hashed_are_not_the_ones_that_run(site: Site, monkeypatch: Any) -> None:
    folder = Path(site.plugin("favourite")) / "favourite"
    site.allow("favourite")
    write = PluginFiles.write

    def exchange(files: PluginFiles, target: Path) -> None:
        write(files, target)
        (folder / "__init__.py").write_text("import os; os._exit(3)")

    monkeypatch.setattr(PluginFiles, "write", exchange)
    assert place(site.load()) == "node-1"
    assert read_files(plugin_in(str(folder))).sha256 != site.allowed["favourite"]["sha256"]


ENDS_BADLY = {
    "it never ends": ("import time\ntime.sleep(600)", "did not answer within"),
    "it claims every point": (
        "class Favourite:\n    name, version, weight = 'a', '1', 1\n    def __getattr__(self, at): return print",
        "make them agree|must be|is not a valid|Object of type|raised",
    ),
    "its name is a trap": (
        "class Favourite:\n    weight = 1\n    version = property(lambda self: 1 // 0)\n    def score(self): ...",
        "raised ZeroDivisionError",
    ),
    "it cannot say what is wrong": (
        "class Bad(Exception):\n    def __str__(self):\n        raise self\nraise Bad",
        "raised Bad, which has no words",
    ),
    "it takes the scheduler's own modules away": ("import sys\nsys.modules.clear()\n" + CODE, ""),
    "it leaves something for the end": (
        "import atexit, os, signal\natexit.register(os._exit, 3)\n" + CODE + "    __del__ = lambda self: 1 // 0\n", "",
    ),
}  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ENDS_BADLY)
def test_a_plugin_that_misbehaves_while_it_is_loaded_stops_nothing(kind: str, site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker_process, "LOAD_MS", 5_000)
    code, words = ENDS_BADLY[kind]
    site.plugin("favourite", code)
    began = time.monotonic()
    plugins = site.allow("favourite").load()
    assert time.monotonic() - began < 40
    status = plugins.status("favourite")
    assert re.search(words, status.detail), status.detail
    assert status.state == "refused" or not words
    assert place(plugins) in ("node-0", "node-1"), "the scheduler decides with it or without it"
