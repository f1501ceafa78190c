"""Read timestamps, as whole seconds: when something starts, ends or expires."""

import re
from datetime import datetime

from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.values.quantities import read_duration_s
from kaiwo.model.errors import ConfigError

EXAMPLE = "2026-01-31T18:00:00Z"
MAX_DIGITS = 11  # of seconds since 1970: milliseconds have more
_DATE, _TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_MOMENT = re.compile(rf"{_DATE}[Tt ]{_TIME}([Zz]|[+-][0-9]{{2}}:[0-9]{{2}})")


def read_timestamp_s(value: object, path: FieldPath) -> int:
    """A time with its time zone."""
    text = value.strip() if isinstance(value, str) else ""
    if not _MOMENT.fullmatch(text):
        raise path.error(f'is {show(value)}, which is not a time with a time zone; write it as "{EXAMPLE}"')
    try:
        moment = datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError:
        raise path.error(f'is {show(value)}, which is not a date of the calendar; write it as "{EXAMPLE}"') from None
    at_s = int(moment.timestamp())
    if at_s <= 0:  # a stored 0 means "never" or "at once"
        raise path.error(f'is {show(value)}, which is before 1970; write it as "{EXAMPLE}"')
    return at_s


def read_past_timestamp_s(value: object, path: FieldPath) -> int:
    """A time with its time zone, or whole seconds since 1970, which is how programs record when they did something."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text):
        return int(text)
    try:
        return read_timestamp_s(value, path)
    except ConfigError:
        raise path.error(
            f'is {show(value)}; write a time with a time zone such as "{EXAMPLE}", or whole seconds since 1970'
        ) from None


def read_timestamp_or_duration_s(value: object, path: FieldPath, base_s: int) -> int:
    """A time, or a duration after `base_s`."""
    if isinstance(value, str) and _MOMENT.fullmatch(value.strip()):
        return read_timestamp_s(value, path)
    try:
        return base_s + read_duration_s(value, path)
    except ConfigError:
        raise path.error(f'is {show(value)}; write a time such as "{EXAMPLE}", or a duration such as "8h"') from None
