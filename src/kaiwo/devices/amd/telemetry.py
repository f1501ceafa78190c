"""Read the telemetry of one AMD GPU from sysfs: once, or every second from files that are kept open.

Never: reads error counters every second: they change rarely, and reading them goes through the firmware.
"""

import errno
import os

from kaiwo.devices.amd.sysfs_device import read_errors
from kaiwo.devices.amd.sysfs_files import error_text, list_entries, parse_number, read_text
from kaiwo.devices.inventory import Errors, Telemetry

NOT_SUPPORTED = frozenset({
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EBUSY, errno.EISDIR,
    errno.ELOOP, errno.ENOTDIR, errno.EAGAIN, errno.ENXIO, errno.ESPIPE,
})  # fmt: skip
NO_VALUE = ("", "N/A", "n/a")
MAX_BYTES = 128
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class SensorFile:
    """A file that is read repeatedly. It is opened at the first read, and again after an error."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = -1

    def number(self, problems: list[str]) -> int | None:
        """The number in the file; anything else is added to the problems."""
        try:
            if self._handle < 0:
                self._handle = os.open(self.path, _FLAGS)
            data = os.pread(self._handle, MAX_BYTES, 0)
        except OSError as error:
            self.close()
            if error.errno not in NOT_SUPPORTED:
                problems.append(f"{os.path.basename(self.path)}: {error_text(error)}")
            return None
        text = data.decode("latin-1").strip()
        value = parse_number(text)
        if value is None and text not in NO_VALUE:
            problems.append(f"{os.path.basename(self.path)} contains no number")
        return value

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


ERRORS_EVERY = 3  # samples
MAX_C, MAX_W = 200, 20_000


class AmdGpuSampler:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        top = os.path.join(folder, "hwmon")
        sensors = next((os.path.join(top, name) for name in list_entries(top) if name.startswith("hwmon")), "")
        self._files = {
            name: SensorFile(os.path.join(folder, name))
            for name in ("gpu_busy_percent", "mem_busy_percent", "mem_info_vram_used")
        }
        self._power = [
            SensorFile(os.path.join(sensors, name)) for name in _existing(sensors, "power1_average", "power1_input")
        ]
        self._limit = [SensorFile(os.path.join(sensors, name)) for name in _existing(sensors, "power1_cap")]
        self._temperatures = {
            read_text(os.path.join(sensors, f"temp{number}_label")) or f"temp{number}": SensorFile(
                os.path.join(sensors, f"temp{number}_input")
            )
            for number in range(1, 6)
            if _existing(sensors, f"temp{number}_input")
        }
        self._errors = Errors()
        self._age = 0

    def sample(self) -> tuple[Telemetry, Errors, list[str]]:
        problems: list[str] = []
        if not os.path.isdir(self.folder):
            return Telemetry(), self._errors, ["the GPU is gone from the PCI bus"]
        telemetry = self.telemetry(problems)
        if self._age % ERRORS_EVERY == 0:
            self._errors = read_errors(os.path.join(self.folder, "ras"))
        self._age += 1
        return telemetry, self._errors, problems

    def telemetry(self, problems: list[str]) -> Telemetry:
        """The current values; files that contain no plausible value are added to the problems."""
        used = self._files["mem_info_vram_used"].number(problems)
        temperatures = {
            name: self._bounded(file, 1000, MAX_C, problems) or None  # a missing sensor says 0
            for name, file in self._temperatures.items()
        }
        chip = [value for name, value in temperatures.items() if name != "mem" and value is not None]
        return Telemetry(
            utilisation_percent=self._bounded(self._files["gpu_busy_percent"], 1, 100, problems),
            memory_used_mib=used >> 20 if used is not None and used >= 0 else None,
            memory_busy_percent=self._bounded(self._files["mem_busy_percent"], 1, 100, problems),
            temperature_c=max(chip, default=None),
            memory_temperature_c=temperatures.get("mem"),
            power_w=self._first(self._power, problems),
            power_limit_w=self._first(self._limit, problems),
        )

    def close(self) -> None:
        for file in (*self._files.values(), *self._power, *self._limit, *self._temperatures.values()):
            file.close()

    def _first(self, files: list[SensorFile], problems: list[str]) -> int | None:
        values = (self._bounded(file, 1_000_000, MAX_W, problems) for file in files)
        return next((value for value in values if value is not None), None)

    @staticmethod
    def _bounded(file: SensorFile, unit: int, most: int, problems: list[str]) -> int | None:
        value = file.number(problems)
        if value is None or 0 <= value <= most * unit:
            return None if value is None else round(value / unit)
        problems.append(f"{os.path.basename(file.path)} says {value}")
        return None


def read_telemetry(folder: str) -> Telemetry:
    """The current telemetry of the GPU with this PCI folder."""
    sampler = AmdGpuSampler(folder)
    try:
        return sampler.telemetry([])
    finally:
        sampler.close()


def _existing(folder: str, *names: str) -> list[str]:
    return [name for name in names if folder and os.path.exists(os.path.join(folder, name))]
