"""Read a workload file of any known shape. The first line, which names the columns, tells which shape it is."""

from collections.abc import Callable, Iterator
from pathlib import Path

from kaiwo.model.errors import ConfigError
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.trace_files import read_rows
from kaiwo.simulate.workloads.openb_jobs import OPENB_COLUMNS, openb_jobs
from kaiwo.simulate.workloads.plain_jobs import PLAIN_COLUMNS, plain_jobs
from kaiwo.simulate.workloads.published_jobs import (
    HELIOS_COLUMNS,
    MURI_COLUMNS,
    PHILLY_COLUMNS,
    SHOCKWAVE_COLUMNS,
    helios_jobs,
    muri_jobs,
    philly_jobs,
    shockwave_jobs,
)

SHAPES: dict[str, tuple[tuple[str, ...], Callable[[Path], Iterator[SimulatedJob]]]] = {
    "plain": (PLAIN_COLUMNS, plain_jobs),
    "openb": (OPENB_COLUMNS, openb_jobs),
    "Muri": (MURI_COLUMNS, muri_jobs),
    "Philly": (PHILLY_COLUMNS, philly_jobs),
    "Shockwave": (SHOCKWAVE_COLUMNS, shockwave_jobs),
    "Helios": (HELIOS_COLUMNS, helios_jobs),
}


def read_jobs(path: Path) -> tuple[str, list[SimulatedJob]]:
    """The name of the shape, and its jobs. The whole file is read before anything is simulated."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    first = next(iter(read_rows(path, ())), None)
    if first is None:
        raise ConfigError(f"{path} lists no jobs")
    for shape, (columns, read) in SHAPES.items():
        if all(column in first.values for column in columns):
            return shape, list(read(path))
    known = "; ".join(f"{shape}: {', '.join(columns)}" for shape, (columns, _) in SHAPES.items())
    raise ConfigError(f"{path}, line 1: these columns are of no known shape. Known are {known}")
