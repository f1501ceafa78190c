"""Where the text of Kaiwo's own rules is: JSON, as every server reads it while it starts; YAML took 14 ms of that."""

from functools import cache
from pathlib import Path


@cache
def default_rules_text() -> str:
    return Path(__file__).with_name("default_rules.json").read_text(encoding="utf-8")
