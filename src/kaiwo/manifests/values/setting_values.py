"""Read the values of the settings in the table of workload fields, from the short form or from annotations."""

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET

from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.values.names import MAX_NAME, NAME, read_level, read_name
from kaiwo.manifests.values.quantities import read_bandwidth_mb_s, read_duration_s
from kaiwo.manifests.values.timestamps import read_timestamp_or_duration_s, read_timestamp_s
from kaiwo.model.network.constraint import PLUGIN_STRATEGY, STRATEGIES
from kaiwo.model.policy import STRATEGY_PLACEMENTS
from kaiwo.model.workload_fields import FIELDS, ValueKind

Duration = Annotated[str | int, msgspec.Meta(description='"45m", "2h30m", "1d", or a number of seconds')]
Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{NAME}$", "maxLength": MAX_NAME})]
Count = Annotated[int | str, msgspec.Meta(description="A whole number.")]
_PLUGIN_STRATEGY = f"{PLUGIN_STRATEGY}{NAME}"
Strategy = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^({'|'.join(STRATEGIES)}|{_PLUGIN_STRATEGY})$"})]
NodeStrategy = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(STRATEGY_PLACEMENTS)})]
Bandwidth = Annotated[str, msgspec.Meta(description='"200Gbps" or "25GB/s"')]
MAX_COUNT = 1_000_000
Reader = Callable[[object, FieldPath], Any]


class SettingReader(NamedTuple):
    form_type: Any  # of the field in the short form
    read_text: Reader  # from an annotation
    read_form: Callable[[object, FieldPath, int], Any]  # from the short form; the number is when it was submitted
    example: str = ""  # for a value of the wrong type


def read_flag(value: object, path: FieldPath) -> bool:
    if value not in ("true", "false"):
        raise path.error(f'is {show(value)}; write "true" or "false", with the quotes')
    return value == "true"


def read_count(value: object, path: FieldPath) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or not 0 < int(text[:9]) <= MAX_COUNT:
        raise path.error(f"is {show(value)}; write a whole number from 1 to {MAX_COUNT:,}")
    return int(text)


def read_strategy(value: object, path: FieldPath) -> str:
    """One of Kaiwo's own, or `plugin:NAME`."""
    if isinstance(value, str) and (value in STRATEGIES or re.fullmatch(_PLUGIN_STRATEGY, value)):
        return value
    raise path.error(f"is {show(value)}; choose from: {', '.join(STRATEGIES)}, or write plugin:NAME")


def read_node_strategy(value: object, path: FieldPath) -> str:
    if isinstance(value, str) and value in STRATEGY_PLACEMENTS:
        return value
    raise path.error(f"is {show(value)}; choose from: {', '.join(STRATEGY_PLACEMENTS)}")


def check_levels(found: dict[str, Any], path_of: Callable[[str], FieldPath], names: dict[str, str]) -> None:
    """Refuse settings about levels that mean nothing without another one. `names`: as the user writes them."""
    for given, other in (("segment_size", "segment_level"), ("segment_level", "segment_size")):
        if found.get(given) and not found.get(other):
            raise path_of(names[given]).error(f"is set without {names[other]}; give both, or neither")
    levels = (
        "required_level",
        "preferred_level",
        "placement_strategy",
        "segment_level",
        "bandwidth_mb_s",
        "roles_level",
    )
    if found.get("topology") and not any(found.get(name) for name in levels):
        fact = f"is set without a level; add {names['required_level']} or {names['preferred_level']}"
        raise path_of(names["topology"]).error(fact)


def _without_time(read: Reader) -> Callable[[object, FieldPath, int], Any]:
    return lambda value, path, _: read(value, path)


READERS = {
    ValueKind.BOOLEAN: SettingReader(bool, read_flag, lambda value, *_: value),
    ValueKind.DURATION: SettingReader(Duration, read_duration_s, _without_time(read_duration_s), 'write it as "2h30m"'),
    ValueKind.TIMESTAMP: SettingReader(str, read_timestamp_s, read_timestamp_or_duration_s),
    ValueKind.NAME: SettingReader(Name, read_name, _without_time(read_name)),
    ValueKind.COUNT: SettingReader(Count, read_count, _without_time(read_count), "write a whole number, such as 8"),
    ValueKind.LEVEL: SettingReader(str, read_level, _without_time(read_level)),
    ValueKind.BANDWIDTH: SettingReader(
        Bandwidth, read_bandwidth_mb_s, _without_time(read_bandwidth_mb_s), "write it as 200Gbps"
    ),
    ValueKind.NODE_STRATEGY: SettingReader(NodeStrategy, read_node_strategy, _without_time(read_node_strategy)),
    ValueKind.STRATEGY: SettingReader(Strategy, read_strategy, _without_time(read_strategy)),
}


SHORT_NAMES = {field.name: field.short for field in FIELDS}


def read_form_settings(form: msgspec.Struct, owner: str, submitted_s: int) -> dict[str, Any]:
    """All settings of a submission form, by their name in `Workload`."""
    found = {}
    for field in FIELDS:
        value = getattr(form, field.name)
        read = READERS[field.kind].read_form
        found[field.name] = field.default if value is UNSET else read(value, FieldPath(owner, field.short), submitted_s)
    check_levels(found, lambda short: FieldPath(owner, short), SHORT_NAMES)
    return found
