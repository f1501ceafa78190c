"""The worker process of one confined plugin: loads it, then answers one question after the other.

In:    the file descriptors of two pipes and two pieces of shared memory, as arguments.
Never: trusts the plugin. What it may do, the kernel enforces: see `confinement`. The audit hook only names what a
       plugin tried, so that people read more than "killed by SIGSYS".
"""

import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec
import numpy as np

from kaiwo.model.errors import ConfigError
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.plugins.contract import DomainTable, VictimTable
from kaiwo.plugins.guarded_calls import words_of
from kaiwo.plugins.registry import ALL_POINTS
from kaiwo.runtime.plugin_worker import messages
from kaiwo.runtime.plugin_worker.confinement import confine
from kaiwo.runtime.plugin_worker.plugin_files import OWN_MODULES
from kaiwo.runtime.plugin_worker.plugin_object import make_plugin
from kaiwo.runtime.plugin_worker.shared_memory import MESSAGE_PLACE, InputReader, OutputWriter
from kaiwo.snapshot.array_types import read_only
from kaiwo.snapshot.node_table import EXTENDED, EditableNodeTable, NodeTable
from kaiwo.snapshot.queue_table import EditableQueueTable
from kaiwo.snapshot.view import NO_TENANTS, View

MAX_WORDS = 500
_LIBRARIES = ("/usr/lib", "/lib", "/lib64")  # of the system, which extension modules load
MAX_DESCRIPTORS = 65_536
# What no plugin does: see the events that CPython audits.
FORBIDDEN = (
    "socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill", "signal.",
    "os.putenv", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.truncate", "os.link",
    "os.symlink", "ctypes.dlopen", "pty.", "shutil.", "webbrowser.", "_thread.start_new_thread", "resource.setrlimit",
    "fcntl.",
)  # fmt: skip


# Of each point at the edge: what it is called with.
_EDGE_ARGUMENTS: dict[str, Callable[[messages.Ask], tuple[Any, ...]]] = {
    "reserve": lambda ask: (ask.placements, ask.now_s),
    "unreserve": lambda ask: (ask.placements,),
    "permit": lambda ask: (ask.placements, ask.now_s),
    "bind": lambda ask: (ask.placements,),
    "post_bind": lambda ask: (ask.placements, ask.now_s),
    "resource": lambda ask: (ask.nodes,),
    "topology_source": lambda ask: (ask.nodes, ask.text),
    "metrics": lambda ask: (ask.sample,),
    "sink": lambda ask: (ask.sample,),
    "notification": lambda ask: (ask.notice,),
}


class Worker:
    def __init__(self, asks: int, answers: int, shared_input: int, shared_output: int) -> None:
        self._asks, self._answers = asks, answers
        self._input, self._output = InputReader(shared_input), OutputWriter(shared_output)
        _close_all_but(asks, answers)  # `mmap` has kept copies of the descriptors of its memory
        self._plugin: Any = None
        self._tables = ViewTables()
        self._readable: tuple[str, ...] = ()
        self._is_loading = True
        self._number = messages.CONFINED

    def run(self) -> NoReturn:
        confine_first, load = self._next(), None
        if isinstance(confine_first, messages.Confine):
            self._confine(confine_first)
            load = self._next()
        if not isinstance(load, messages.Load):
            os._exit(3)
        self._load(load)
        while True:
            message = self._next()
            assert not isinstance(message, messages.Confine | messages.Load)
            self._number = message.number
            try:
                if isinstance(message, messages.Define):
                    self._tables.define(message, self._arrays(message))
                    self._answer(messages.VALUE, messages.encoder.encode(None))
                else:
                    self._reply(self._call(message))
            except BaseException as error:  # foreign code may raise anything, even SystemExit
                self._fault(error)

    def _next(self) -> messages.Message:
        place = os.read(self._asks, MESSAGE_PLACE.size)
        if len(place) < MESSAGE_PLACE.size:
            os._exit(0)  # the scheduler is gone
        return messages.decoder.decode(self._input.message(place))

    def _confine(self, asked: messages.Confine) -> None:
        python, own = _python_folders(), _own_folders()
        parts = [part for folder in (*python, *_LIBRARIES) for part in _parts_of_python(folder, python)]
        self._readable = (*parts, *own, asked.folder)
        sys.path[:] = [asked.folder, *(each for each in sys.path if each in python or each.endswith(".zip"))]
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder, _NoOtherModules()]
        sys.path_importer_cache.clear()
        sys.dont_write_bytecode = True
        warnings.simplefilter("ignore")  # showing one reads source files
        os.environ.clear()
        grade = confine((*self._readable, "/dev/null", "/dev/urandom"), asked.memory_mib, python)
        self._answer(messages.VALUE, messages.encoder.encode(grade))

    def _load(self, load: messages.Load) -> None:
        self._number = messages.LOADED
        sys.addaudithook(self._audit)
        try:
            self._plugin = make_plugin(load)
            loaded = _describe(self._plugin)
        except ConfigError as error:
            self._answer(messages.FAULT, str(error)[:MAX_WORDS].encode("utf-8", "replace"))
            os._exit(0)
        except BaseException as error:  # the same: the plugin's own code ran
            self._fault(error)
            os._exit(0)
        self._is_loading = False
        self._answer(messages.VALUE, messages.encoder.encode(loaded))

    def _arrays(self, message: messages.Define | messages.Ask) -> dict[str, np.ndarray[Any, Any]]:
        return {name: self._input.array(place) for name, place in message.arrays.items()}

    def _call(self, ask: messages.Ask) -> Any:
        arrays = self._arrays(ask)
        if ask.point == "applies":
            return bool(self._plugin.applies(ask.want))
        if ask.point in _EDGE_ARGUMENTS:
            return getattr(self._plugin, ask.point)(*_EDGE_ARGUMENTS[ask.point](ask))
        if ask.point == "workload_order":
            return self._plugin.workload_order(ask.workload, ask.policy)
        if ask.point in ("gpu_score", "allocation"):
            view = self._tables.view_of_node(ask, arrays)
            return getattr(self._plugin, ask.point)(view, ask.want, ask.node, arrays["columns"])
        view = self._tables.view(ask, arrays)
        if ask.point == "gpu_applies":
            return bool(self._plugin.gpu_applies(view, ask.want))
        if ask.point == "queue_order":
            return self._plugin.queue_order(view, arrays["rows"], arrays["next_need"], arrays["next_since_s"])
        if ask.point == "victim_filter":
            priority, gpu_milli, since_s, ends_s, lost_gpu_s = arrays["victims"]
            victims = VictimTable(
                ask.names, ask.queues, priority, gpu_milli, since_s, ends_s, lost_gpu_s, arrays["is_surplus"]
            )
            return self._plugin.victim_filter(view, victims, ask.policy)
        if ask.point == "replica_strategy":
            return self._plugin.replica_strategy(view, ask.need)
        if ask.domains is not None:
            domains = DomainTable(*msgspec.structs.astuple(ask.domains), *arrays["domain_amounts"])
            if ask.point == "domain_rule":
                return self._plugin.domain_rule(view, domains, ask.policy)
            return self._plugin.placement_strategy(view, domains, arrays["terms"], arrays["weights"])
        answers = [getattr(self._plugin, ask.point)(view, want, arrays["rows"]) for want in (ask.want, *ask.more)]
        kinds = {(each.shape, each.dtype) if isinstance(each, np.ndarray) else None for each in answers}
        # Who asked says what is wrong with an answer: with the first, when they are not arrays of one kind.
        return np.stack(answers) if ask.more and len(kinds) == 1 and None not in kinds else answers[0]

    def _reply(self, answer: Any) -> None:
        if isinstance(answer, np.ndarray):
            self._answer(messages.ARRAY, messages.encode_array(answer))
        else:
            self._answer(messages.VALUE, messages.encoder.encode(answer))

    def _answer(self, kind: int, data: bytes) -> None:
        self._output.put(data)
        os.write(self._answers, messages.ANSWER.pack(self._number, kind, len(data)))

    def _fault(self, error: BaseException) -> None:
        self._answer(messages.FAULT, words_of(error)[:MAX_WORDS].encode("utf-8", "replace"))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Report what a plugin tried, and end: the kernel would refuse it without a word that people understand."""
        words = ""
        if event == "open" and not self._may_open(arguments[0]):
            words = f"tried to open {str(arguments[0])[:200]}"
            if not self._is_loading and self._is_readable(arguments[0]):
                words = f"{words} while it was asked; import modules and read files when the module is loaded"
        elif event.startswith(FORBIDDEN):
            words = f"tried {event}"
        if words:
            self._answer(messages.FAULT, words.encode("utf-8", "replace"))
            os._exit(0)

    def _may_open(self, path: Any) -> bool:
        """While it is loaded, modules are read from the allowed folders; later nothing is read."""
        return self._is_loading and self._is_readable(path)

    def _is_readable(self, path: Any) -> bool:
        if not isinstance(path, str | bytes):
            return False
        found = os.path.abspath(os.fsdecode(path))
        return any(found == each or found.startswith(each.rstrip("/") + "/") for each in self._readable)


class ViewTables:
    """The tables of the last definitions, from which each view is made."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._known: dict[str, tuple[Node, Mapping[str, int]]] = {}  # each with the columns of its devices
        self._queues = EditableQueueTable().read_only()
        self._shown: NodeTable = EditableNodeTable().read_only()
        self._free = self._gpus = np.zeros(0, np.int64)

    def define(self, new: messages.Define, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        """Only what changed is decoded: a node that joins a large cluster must not cost as much as all of them."""
        for node in new.nodes:
            _close(node, "labels", "extended")
            self._known[node.name] = node, MappingProxyType({gpu.id: at for at, gpu in enumerate(node.gpus)})
        if new.names is not None:
            self._names = new.names
            self._known = {name: self._known[name] for name in new.names}
        columns = {name: read_only(arrays[name].copy()) for name in messages.NODE_COLUMNS}
        fixed = {
            "names": self._names,
            "row": MappingProxyType({name: row for row, name in enumerate(self._names)}),
            "nodes": tuple(self._known[name][0] for name in self._names),
            "column": tuple(self._known[name][1] for name in self._names),
            "models": new.models,
            "profiles": new.profiles,
            "extended_names": new.extended_names,
            "vendors": MappingProxyType(new.vendors),
            "_derived": {},
        }
        self._shown = NodeTable(fixed | columns)
        if new.queues is not None:
            for queue in new.queues:
                _close(queue, "gpu_models")
            self._queues = EditableQueueTable({queue.name: queue for queue in new.queues}).read_only()
        rows, width = arrays["gpu_model"].shape
        self._free = np.zeros((rows, EXTENDED + len(new.extended_names)), np.int64)
        self._gpus = np.zeros((rows, 4, width), np.int64)

    def view(self, ask: messages.Ask, arrays: dict[str, np.ndarray[Any, Any]]) -> View:
        view = self._make_view(
            ask, {name: arrays[name] for name in ("free", "gpus", "all_used", "all_non_preemptible")}
        )
        if "own_free" in arrays:
            return view.with_amounts(arrays["rows"], arrays["own_free"], arrays["own_gpus"])
        return view

    def view_of_node(self, ask: messages.Ask, arrays: dict[str, np.ndarray[Any, Any]]) -> View:
        """Only this node has amounts: others may be out of date, and a plan must not depend on that."""
        self._free[:], self._gpus[:] = 0, 0
        self._free[ask.node], self._gpus[ask.node] = arrays["free"], arrays["gpus"]
        none = np.zeros((len(self._queues.names), 3), np.int64)
        return self._make_view(ask, {"free": read_only(self._free), "gpus": read_only(self._gpus), "all_used": none,
                                     "all_non_preemptible": none})  # fmt: skip

    def _make_view(self, ask: messages.Ask, amounts: dict[str, Any]) -> View:
        fixed = {
            "now_s": ask.now_s, "clock": ask.clock, "nodes": self._shown, "queues": self._queues, "tenants": NO_TENANTS,
            "reservations": None, "past_usage": None, "prices": None, "node_failures": {}, "node_speeds": {},
            "measured_ports": {}, "gpu_loads": {}, "_derived": {},
        }  # fmt: skip
        return View(fixed | amounts)


def _close(value: msgspec.Struct, *fields: str) -> None:
    """These tables of a node or a queue stay as they are: it is shown again in later cycles, which must not depend on
    what a plugin wrote there."""
    for field in fields:
        msgspec.structs.force_setattr(value, field, MappingProxyType(getattr(value, field)))


def _describe(plugin: Any) -> messages.Loaded:
    declared = {name: getattr(plugin, name) for name in messages.DECLARED if hasattr(plugin, name)}
    if "reason" in declared:
        declared["reason"] = Reason(declared["reason"]).value
    points, methods = (
        tuple(name for name in names if callable(getattr(plugin, name, None)))
        for names in (ALL_POINTS, messages.OPTIONAL)
    )
    return messages.Loaded(points, declared, methods, str(getattr(plugin, "version", "")))


def _close_all_but(*kept: int) -> None:
    begin = 3
    for fd in (*sorted(kept), MAX_DESCRIPTORS):
        os.closerange(begin, fd)
        begin = fd + 1


class _NoOtherModules:
    """Asked last for a module: what an administrator did not allow is not imported, not even by a plugin."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if path is None:  # else a part of a package that may be imported, and does not exist
            own = ", ".join(f"{each}.plugins" if each == "kaiwo" else each for each in OWN_MODULES)
            words = f"plugins import Python's own modules, {own} and their own package, not '{name}'"
            raise ModuleNotFoundError(f"{words}; copy what you need of it into the package", name=name)


def _python_folders() -> list[str]:
    """Where Python's own modules lie, without installed packages."""
    paths = sysconfig.get_paths()
    stdlib = {paths[name] for name in ("stdlib", "platstdlib")}
    return sorted({*stdlib, *(os.path.join(each, "lib-dynload") for each in stdlib)})


def _parts_of_python(folder: str, python: Collection[str]) -> Iterator[str]:
    """What lies in one of these folders or of the system's libraries, without packages that somebody installed there:
    no hash covers them. A link leads to a place that has a right of its own, or to one that nobody meant."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # not every system has all of them
    for entry in entries:
        if entry.is_symlink() or entry.name in ("site-packages", "dist-packages"):
            continue
        if folder in python or not entry.name.startswith("python"):
            yield entry.path


def _own_folders() -> list[str]:
    """Where the packages lie that a plugin may import; NumPy has its libraries beside its folder."""
    found = [os.path.dirname(os.path.abspath(str(sys.modules[name].__file__))) for name in OWN_MODULES]
    return sorted({*found, *(f"{each}.libs" for each in found)})


def main() -> NoReturn:
    Worker(*map(int, sys.argv[1:5])).run()


if __name__ == "__main__":
    main()
