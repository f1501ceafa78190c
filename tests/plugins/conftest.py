from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess
from tests.plugins.sites import Site
from tests.plugins.strangers import well_behaved

FOLDER = str(Path(well_behaved.__file__).parent)


class Started:
    """Workers of one test."""

    def __init__(self) -> None:
        self.plugins: list[ConfinedPlugin] = []

    def __call__(self, name: str) -> ConfinedPlugin:
        worker = WorkerProcess(Load(name, FOLDER, f"well_behaved:{name}"), deadline_ms=10_000)
        self.plugins.append(ConfinedPlugin(getattr(well_behaved, name).name, "1", worker))
        return self.plugins[-1]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for each in made.sets:
        each.close()


@pytest.fixture
def confined() -> Iterator[Started]:
    started = Started()
    yield started
    for plugin in started.plugins:
        plugin.worker.close()
