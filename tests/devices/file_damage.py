"""Ways in which a file of sysfs can be wrong. Each takes a path and spoils it."""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def missing(path: Path, _: random.Random) -> None:
    path.unlink()


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def half(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(max(1, len(data) - 1))])


def junk(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(draw.randrange(1, 400)))


def junk_inside(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 9)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(bytes(data))


def not_available(path: Path, _: random.Random) -> None:
    lines = path.read_text(errors="replace").splitlines()
    path.write_text("".join(f"{line.split()[0] if line.split() else ''} N/A\n" for line in lines))


def negative(path: Path, draw: random.Random) -> None:
    lines = path.read_text(errors="replace").splitlines() or [""]
    place = draw.randrange(len(lines))
    lines[place] = f"{lines[place].split()[0] if lines[place].split() else ''} -{draw.randrange(9)}"
    path.write_text("\n".join(lines) + "\n")


def giant(path: Path, draw: random.Random) -> None:
    lines = path.read_text(errors="replace").splitlines() or [""]
    place = draw.randrange(len(lines))
    lines[place] = f"{lines[place].split()[0] if lines[place].split() else ''} {'9' * draw.choice([18, 25, 5000])}"
    path.write_text("\n".join(lines) + "\n")


def huge(path: Path, _: random.Random) -> None:
    path.write_bytes(path.read_bytes() + b"padding 1\n" * 20_000)


def folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def loop(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


Damage = Callable[[Path, random.Random], None]
# After these nothing of the file is left.
TOTAL: tuple[Damage, ...] = (missing, empty, junk, huge, folder, dangling, loop, pipe, not_available)
PARTIAL: tuple[Damage, ...] = (half, junk_inside, negative, giant)
ALL = TOTAL + PARTIAL


@contextmanager
def spoilt(paths: Sequence[Path], draw: random.Random, count: int) -> Iterator[list[Path]]:
    """Some of the files are wrong for a while; afterwards they are as before."""
    chosen = draw.sample(paths, min(count, len(paths)))
    before = [path.read_bytes() for path in chosen]
    try:
        for path in chosen:
            draw.choice(ALL)(path, draw)
        yield chosen
    finally:
        for path, data in zip(chosen, before, strict=True):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            path.write_bytes(data)
