"""Read the CSV files of a trace, plain or gzipped, row by row, and name the file and line of whatever is wrong.

In:    a folder and a file name.   Out: rows with named, checked values.
Never: guesses. A missing column, a word in place of a number or an impossible amount is a ConfigError.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kaiwo.model.errors import ConfigError

MAX_AMOUNT = 1 << 40  # more than any machine has of anything; sums of these still fit in 64 bits


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file, by column."""

    path: Path
    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        return self.values.get(column) or ""

    def whole_number(self, column: str, least: int = 0, most: int = MAX_AMOUNT) -> int:
        found = self.text(column)
        try:
            value = int(found)
        except ValueError:
            raise self.wrong(f"{column} is {found[:40]!r}; it must be a whole number") from None
        if not least <= value <= most:
            raise self.wrong(f"{column} is {value:,}; it must be from {least:,} to {most:,}")
        return value

    def wrong(self, fact: str) -> ConfigError:
        return ConfigError(f"{self.path}, line {self.line}: {fact}")


def find_file(folder: Path, name: str) -> Path:
    """The file of this name, or the gzipped one."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; --data must name the folder with the files of the trace")
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ConfigError(f"{folder} has neither {name} nor {name}.gz; give the folder of the trace with --data")


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a CSV file with at least these columns."""
    reader = csv.reader(io.StringIO(_text_of(path), newline=""), strict=True)
    try:
        titles = next(reader, [])
        missing = [name for name in columns if name not in titles]
        if missing:
            raise ConfigError(
                f"{path}, line 1: there is no column {', '.join(missing)}; the first line must name the columns "
                f"{', '.join(columns)}"
            )
        twice = [name for name in titles if titles.count(name) > 1]
        if twice:
            raise ConfigError(f"{path}, line 1: the column {twice[0]!r} is there twice; give it once")
        for cells in reader:
            if not cells:
                continue  # an empty line
            row = Row(path, reader.line_num, dict(zip(titles, cells, strict=False)))
            if len(cells) != len(titles):
                raise row.wrong(f"there are {len(cells)} values under {len(titles)} columns")
            yield row
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: this is not CSV: {error}") from None


def _text_of(path: Path) -> str:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")  # spreadsheets begin a file with a byte order mark
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: this is not UTF-8 text") from None
