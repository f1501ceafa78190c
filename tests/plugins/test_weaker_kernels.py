"""Kernels that lack a measure: the weaker grade is shown, and what is left still holds.

The absence is real for the worker: a filter of system calls in front of it answers as such a kernel would.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kaiwo.runtime.plugin_worker.confinement import Grade
from tests.conftest import ROOT
from tests.plugins.sites import Site
from tests.plugins.strangers import hostile

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")

# In: the missing measure, the home and the file of plugins. Out: state and grade of each loaded plugin, and the
# notes of some cycles.
LAUNCH = """
import asyncio, ctypes, json, struct, sys
lacks, home, file = sys.argv[1:]
call, argument, error = {"landlock": (444, None, 38), "seccomp": (157, 22, 22), "nothing": (444, 99, 38)}[lacks]
lines = [(0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16)]
lines += [(0x15 if argument is not None else 0x35, 0, 1, argument or 0), (0x06, 0, 0, 0x50000 | error)]
lines.append((0x06, 0, 0, 0x7FFF0000))
program = b"".join(struct.pack("<HBBI", *line) for line in lines)
buffer = ctypes.create_string_buffer(program, len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
whole, libc = Program(len(lines), ctypes.cast(buffer, ctypes.c_void_p)), ctypes.CDLL(None, use_errno=True)
zero = ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(whole), zero, zero) == 0

from kaiwo.decide import decide
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet
from tests.worlds import World
plugins = PluginSet(home, file)
plugins.load_on_thread()
loaded = [(each.name, each.state, each.grade) for each in plugins.statuses() if each.run == "confined"]
world, notes = World(nodes=2, plugins=plugins.registry), []
for number in range(5):
    world.submit(f"w{number}", gpus_each=1, cpu_milli=1_000 + number)
    plan = decide(world.snapshot(), DEFAULT_POLICY, plugins.registry)
    notes += [(note.subject, note.detail) for note in plan.notes]
    world.after(plan)
plugins.close()
print(json.dumps([loaded, notes]))
"""


def run(site: Site, kind: str, lacks: str) -> tuple[list[list[str]], list[list[str]]]:
    folder = Path(site.plugin(kind.replace("_", "-"), Path(hostile.__file__).read_text()))
    manifest = next(folder.glob("*/kaiwo-plugin.toml"))
    manifest.write_text(manifest.read_text().replace(":Favourite", f":{kind}"))
    site.allow(kind.replace("_", "-"), deadlineMs=2_000)
    command = [sys.executable, "-c", LAUNCH, lacks, str(site.home), str(site.file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    loaded, notes = json.loads(done.stdout)
    return loaded, notes


@pytest.mark.parametrize(
    ("lacks", "grade"),
    [("nothing", "full"), ("landlock", "weaker: without landlock"), ("seccomp", "weaker: without seccomp")],
)
def test_the_grade_says_what_the_kernel_lacks(lacks: str, grade: str, site: Site) -> None:
    loaded, notes = run(site, "raises", lacks)
    assert loaded == [["raises", "active", grade]]
    assert notes[0] == ["raises", "raised ZeroDivisionError: integer division or modulo by zero"]


@pytest.mark.parametrize(
    ("kind", "lacks", "words"),
    [
        ("signals_the_parent_through_a_pipe", "landlock", "system call"),
        ("signals_the_parent_behind_pythons_back", "landlock", "system call"),
        ("opens_a_socket_behind_pythons_back", "landlock", "system call"),
        ("reads_a_signing_key_behind_pythons_back", "seccomp", "nothing could be read"),
        ("writes_a_file_behind_pythons_back", "seccomp", "nothing could be written"),
        ("takes_ten_gigabytes", "seccomp", "MemoryError"),
    ],
)
def test_what_is_left_still_holds(kind: str, lacks: str, words: str, site: Site) -> None:
    (site.home / "code" / "signing.key").parent.mkdir(exist_ok=True)
    (site.home / "code" / "signing.key").write_text("secret")
    loaded, notes = run(site, kind, lacks)
    assert loaded[0][2] == f"weaker: without {lacks}"
    assert words in notes[0][1]


def test_a_grade_without_a_gap_is_full() -> None:
    assert Grade(("seccomp",)).words == "full"
