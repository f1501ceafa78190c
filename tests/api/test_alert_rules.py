"""The alert rules use metrics and labels that Kaiwo serves; `promtool` checks them where it is installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from kaiwo.model.recovery import RecoveryWay
from tests.api.world import world
from tests.waiting import run

RULES = sorted((Path(__file__).parents[2] / "deploy/alerts").glob("*.yaml"))
SUFFIXES = ("_bucket", "_count", "_sum", "_total")
_METRIC = re.compile(r"\b((?:kaiwo|topology)_[a-z_]+)")


def rules() -> list[dict[str, str]]:
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def test_every_rule_uses_metrics_that_are_served(tmp_path: Path) -> None:
    async def served() -> set[str]:
        async with world(tmp_path) as kaiwo:
            lines = (await kaiwo.metrics()).splitlines()
            return {line.split()[2] for line in lines if line.startswith("# TYPE")}

    families = run(served())
    assert len(rules()) >= 6
    for rule in rules():
        used = _METRIC.findall(rule["expr"])
        assert used, rule["alert"]
        for name in used:
            stem = next((name.removesuffix(each) for each in SUFFIXES if name.removesuffix(each) in families), name)
            assert {name, stem} & families, f"{rule['alert']} uses {name}, which is not served"
        ways = re.findall(r'way="([a-z]+)"', rule["expr"])
        assert set(ways) <= {way.value for way in RecoveryWay}
        assert rule["annotations"]["summary"], rule["alert"]  # type: ignore[index]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_prometheus_accepts_the_rules(path: Path) -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
