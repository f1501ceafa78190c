"""Read quantities as integers: CPU ("500m"), memory ("16Gi"), GPUs, fractions of one ("0.5"), durations ("2h30m").

Never: uses a float: everything is exact, and what would be rounded down is refused or rounded up.
"""

import re
from decimal import ROUND_CEILING, Context, Decimal

from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.model.amounts import memory
from kaiwo.model.gpus.gpu import WHOLE_MILLI

MIB = 1 << 20
MAX_CPU_MILLI = 100_000_000  # 100,000 cores for one pod
MAX_MEMORY_MIB = 1 << 30  # 1 PiB for one pod
MAX_GPU_MIB = 1 << 20  # 1 TiB on one device
MAX_GPUS = 64  # for one pod: the partitions of the largest node we know
MAX_DURATION_S = 10 * 365 * 86_400
MIN_FRACTION_MILLI = 10

_EXACT = Context(prec=120)
_BINARY = {name: Decimal(1024**power) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_UNITS = _BINARY | {name: Decimal(10) ** power for name, power in _DECIMAL.items()}
# Bounded, so that "1e999999999" is never worked out.
_NUMBER = r"[+-]?(?:[0-9]{1,25}(?:\.[0-9]{0,25})?|\.[0-9]{1,25})"
_QUANTITY = re.compile(rf"({_NUMBER})(?:([eE][+-]?[0-9]{{1,2}})|([a-zA-Z]*))")
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|[wdhms])")
_UNIT_SECONDS = (("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1), ("ms", "0.001"))
MAX_BANDWIDTH_MB_S = 10_000_000  # 10 TB/s for one pod
BANDWIDTH_EXAMPLE = "write it as 200Gbps or 25GB/s"
_BANDWIDTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(Mbps|Gbps|Tbps|MB/s|GB/s|TB/s)")
_MB_S = {
    "Mbps": Decimal("0.125"), "Gbps": Decimal(125), "Tbps": Decimal(125_000),
    "MB/s": Decimal(1), "GB/s": Decimal(1000), "TB/s": Decimal(1_000_000),
}  # fmt: skip
_SECONDS = {unit: Decimal(seconds) for unit, seconds in _UNIT_SECONDS}


def read_quantity(value: object, path: FieldPath, example: str) -> Decimal:
    """A Kubernetes quantity, exactly. The error message shows `example`."""
    text = _as_text(value, path, f"write it as {example}")
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise path.error(f"is {show(value)}, which is not a quantity; write it as {example}")
    number, exponent, unit = match.groups()
    if exponent:
        return _EXACT.create_decimal(number + exponent)
    if unit not in _UNITS:
        raise path.error(
            f"is {show(value)}, but {show(unit)} is not a unit{_likely_unit(unit, number)}; write {example}"
        )
    return _EXACT.multiply(Decimal(number), _UNITS[unit])


def read_cpu_milli(value: object, path: FieldPath, most: int = MAX_CPU_MILLI) -> int:
    """Cores as milli-CPU: "4", "500m", 0.5."""
    cores = _not_negative(read_quantity(value, path, '"4" or "500m"'), value, path)
    return _bounded(_EXACT.multiply(cores, Decimal(1000)), most, value, path, f"{most // 1000:,} cores")


def read_memory_bytes(value: object, path: FieldPath, most_mib: int = MAX_MEMORY_MIB) -> int:
    """Memory in bytes: "16Gi", "500M", or a number of bytes."""
    amount = _not_negative(read_quantity(value, path, '"16Gi" or "512Mi"'), value, path)
    return _bounded(amount, most_mib * MIB, value, path, f"{most_mib >> 30:,}Pi")


def read_memory_mib(value: object, path: FieldPath) -> int:
    """A pod's memory in the short form, where a number without a unit is probably a mistake."""
    size = read_memory_bytes(value, path)
    if 0 < size < MIB:
        raise path.error(f'is {show(value)}, which is less than 1 MiB; write a unit, such as "16Gi" or "512Mi"')
    return to_mib(size)


def to_mib(size_bytes: int) -> int:
    """Bytes as MiB, rounded up."""
    return -(-size_bytes // MIB)


def read_fraction_milli(value: object, path: FieldPath) -> int:
    """A part of one GPU as milli: "0.5" is 500."""
    range_text = "but a fraction is 0.01 to 1 of one GPU, in steps of 0.001"
    text = _as_text(value, path, 'write it as "0.5"').strip()
    if text.endswith("%"):
        raise path.error(f'is {show(value)}, {range_text}; write it without the percent sign, such as "0.5" for half')
    if not re.fullmatch(_NUMBER, text):
        raise path.error(f'is {show(value)}, {range_text}; write it as "0.5"')
    milli = _EXACT.multiply(Decimal(text), Decimal(WHOLE_MILLI))
    if milli > WHOLE_MILLI:
        raise path.error(f"is {show(value)}, {range_text}; for more than one GPU ask for whole GPUs instead")
    if milli < MIN_FRACTION_MILLI:
        raise path.error(f'is {show(value)}, {range_text}; ask for at least "0.01", or leave it out')
    if milli != int(milli):
        raise path.error(f'is {show(value)}, {range_text}; round it, such as "{Decimal(int(milli)) / 1000}"')
    return int(milli)


def read_gpu_mib(value: object, path: FieldPath) -> int:
    """Memory on one GPU: a number is MiB; "16Gi" is understood too."""
    amount = _not_negative(read_quantity(value, path, '"4000" (MiB) or "16Gi"'), value, path)
    has_unit = isinstance(value, str) and value.strip()[-1:].isalpha()
    mib = _EXACT.divide(amount, Decimal(MIB)) if has_unit else amount
    if not has_unit and mib != mib.to_integral_value():
        raise path.error(f'is {show(value)}, but GPU memory is counted in whole MiB; write "4000" or "16Gi"')
    if mib < 1:
        raise path.error(f'is {show(value)}, which is less than 1 MiB; write "4000" (MiB) or "16Gi", or leave it out')
    return _bounded(mib, MAX_GPU_MIB, value, path, f"{memory(MAX_GPU_MIB)} of one GPU")


def read_whole_gpus(value: object, path: FieldPath, fraction_field: str) -> int:
    amount = _not_negative(read_quantity(value, path, '"1"'), value, path)
    if amount != amount.to_integral_value():
        part = f"{amount.normalize():f}" if Decimal("0.01") <= amount < 1 else "0.5"
        way_out = f'for a part of one leave it out and write {fraction_field}: "{part}"'
        raise path.error(f"is {show(value)}, but it counts whole GPUs; {way_out}")
    if amount > MAX_GPUS:
        raise path.error(
            f"asks for {show(int(amount) if amount < 10**18 else value)} whole GPUs"
            f"{_meant_as_milli(amount, fraction_field)}; one pod gets at most {MAX_GPUS}: for more GPUs in all, "
            "ask for more pods"
        )
    return int(amount)


def read_duration_s(value: object, path: FieldPath) -> int:
    """Whole seconds: 90, "90", "45m", "2h30m", "1d"."""
    example = 'write it as "45m", "2h30m" or "1d", or as a number of seconds'
    text = _as_text(value, path, example).strip()
    if re.fullmatch(r"[0-9]{1,12}", text):
        seconds = Decimal(text)
    else:
        parts = _DURATION_PART.findall(text)
        if not parts or "".join(map("".join, parts)) != text:
            raise path.error(f"is {show(value)}, which is not a duration; {example}")
        units = [unit for _, unit in parts]
        if units != [unit for unit in _SECONDS if unit in units]:
            raise path.error(f"is {show(value)}, but each unit may appear once, the largest first; {example}")
        seconds = sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal(0))
    if seconds != seconds.to_integral_value():
        raise path.error(f"is {show(value)}, but durations are whole seconds; {example}")
    if not 1 <= seconds <= MAX_DURATION_S:
        raise path.error(f"is {show(value)}, but a duration is 1 second to 10 years; {example}, or leave it out")
    return int(seconds)


def read_bandwidth_mb_s(value: object, path: FieldPath) -> int:
    """`200Gbps` or `25GB/s`, in MB/s."""
    text = _as_text(value, path, BANDWIDTH_EXAMPLE)
    match = _BANDWIDTH.fullmatch(text)
    mb_s = Decimal(match[1]) * _MB_S[match[2]] if match else Decimal(0)
    if not 1 <= mb_s <= MAX_BANDWIDTH_MB_S:
        raise path.error(f"is {show(value)}; {BANDWIDTH_EXAMPLE}")
    return int(mb_s)


def _as_text(value: object, path: FieldPath, way_out: str) -> str:
    is_number_or_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not is_number_or_text or (isinstance(value, str) and len(value) > 60):
        raise path.error(f"is {show(value)}, which is not a quantity; {way_out}")
    return value if isinstance(value, str) else repr(value)


def _not_negative(amount: Decimal, value: object, path: FieldPath) -> Decimal:
    if amount < 0:
        raise path.error(f"is {show(value)}, which is negative; write 0 or more")
    return amount


def _bounded(amount: Decimal, most: int, value: object, path: FieldPath, most_text: str) -> int:
    if amount > most:
        raise path.error(f"is {show(value)}, which is too much; the maximum is {most_text}")
    return int(amount.to_integral_value(rounding=ROUND_CEILING))


def _likely_unit(unit: str, number: str) -> str:
    bare = unit.lower().removesuffix("b").removesuffix("i")
    for known in (bare.upper() + "i", bare.upper()):
        if bare and known in _UNITS:
            return f' (did you mean "{number}{known}"?)'
    return ""


def _meant_as_milli(amount: Decimal, fraction_field: str) -> str:
    """500 probably means half a GPU; 100 means a hundred GPUs."""
    if amount not in (250, 500, 750):
        return ""
    part = f"{(amount / WHOLE_MILLI).normalize():f}"
    words = "half" if amount == 500 else part
    return f', not {words} of one; for {words} write {fraction_field}: "{part}"'
