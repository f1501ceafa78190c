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


def every_rule() -> list[dict[str, str]]:
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def rules() -> list[dict[str, str]]:
    """Those that alert."""
    return [rule for rule in every_rule() if "alert" in rule]


def test_every_rule_uses_metrics_that_are_served(tmp_path: Path) -> None:
    async def served() -> set[str]:
        async with world(tmp_path) as kaiwo:
            lines = (await kaiwo.metrics()).splitlines()
            return {line.split()[2] for line in lines if line.startswith("# TYPE")}

    families = run(served())
    assert len(rules()) >= 6
    for rule in every_rule():
        name_of_rule = rule.get("alert") or rule["record"]
        used = _METRIC.findall(rule["expr"])
        assert used, name_of_rule
        for name in used:
            stem = next((name.removesuffix(each) for each in SUFFIXES if name.removesuffix(each) in families), name)
            assert {name, stem} & families, f"{name_of_rule} uses {name}, which is not served"
        ways = re.findall(r'way="([a-z]+)"', rule["expr"])
        assert set(ways) <= {way.value for way in RecoveryWay}
        assert "record" in rule or rule["annotations"]["summary"], name_of_rule  # type: ignore[index]


PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: sudo apt-get install prometheus)"
)


@PROMTOOL
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_prometheus_accepts_the_rules(path: Path) -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# By alert: series of one sample a minute, the minute at which the alert is not there yet, and the one at which it is.
SLOW = 'topology_recovery_duration_seconds_bucket{cause="node",way="replace",le="%s"}'
FIRES = {
    "KaiwoRecoverySlow": ({SLOW % "30": "0+0x90", SLOW % "60": "0+1x90", SLOW % "+Inf": "0+1x90"}, 0, 60),
    "KaiwoNodeMustBeFenced": ({'kaiwo_recoveries{way="fence"}': "0 2x90"}, 3, 10),
    "KaiwoRecoveryWithoutRoom": ({'kaiwo_recoveries{way="wait"}': "0 1x90"}, 10, 20),
    "KaiwoNodesFailed": ({"kaiwo_nodes_failed": "0 3x90"}, 10, 20),
    "KaiwoNodesSlow": ({"kaiwo_nodes_slow": "0 1x90"}, 0, 5),
    "KaiwoHasNoLeader": ({"kaiwo_leader": "1 1 1 1 1 _x90"}, 4, 20),
    "KaiwoAlertFires": ({'kaiwo_alerts{state="firing",severity="critical",alert="gpu-hot"}': "0 0 3x90"}, 1, 5),
    "KaiwoAlertsNotDelivered": ({'kaiwo_alert_messages_waiting{channel="ops"}': "0 2x90"}, 9, 20),
    "KaiwoCyclesFail": ({"kaiwo_cycle_failures_total": "0 0 0 1x90"}, 2, 5),
    "KaiwoPlannedStartsBroken": ({'kaiwo_planned_starts_total{outcome="delayed"}': "0 0 0 1x90"}, 2, 5),
    "KaiwoNetworkPortsDown": ({"kaiwo_network_ports_down": "0 1x90"}, 3, 10),
}


LABELS = {
    "KaiwoRecoverySlow": {"cause": "node"},
    "KaiwoAlertFires": {"alert": "gpu-hot"},
    "KaiwoAlertsNotDelivered": {"channel": "ops"},
}


@PROMTOOL
def test_every_alert_is_there_when_it_should_be_and_not_before(tmp_path: Path) -> None:
    """Two replicas serve the same metrics: an alert is one all the same."""
    assert set(FIRES) == {rule["alert"] for rule in rules()}
    tests = []
    for alert, (series, quiet_min, loud_min) in FIRES.items():
        replicas = [f'{name[:-1] + "," if name.endswith("}") else name + "{"}replica="%s"}}' for name in series]
        rule = next(each for each in rules() if each["alert"] == alert)
        labels = {"severity": rule["labels"]["severity"]}  # type: ignore[index]
        labels |= LABELS.get(alert, {})
        expected = [{"exp_labels": labels, "exp_annotations": {"summary": _summary(alert)}}]
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": name % replica, "values": values}
                    for replica in ("a", "b")
                    for name, values in zip(replicas, series.values(), strict=True)
                ],
                "alert_rule_test": [
                    {"eval_time": f"{quiet_min}m", "alertname": alert, "exp_alerts": []},
                    {"eval_time": f"{loud_min}m", "alertname": alert, "exp_alerts": expected},
                ],
            }
        )
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(each) for each in RULES], "tests": tests}))
    checked = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def _summary(alert: str) -> str:
    values = {
        "KaiwoNodeMustBeFenced": "2",
        "KaiwoNodesFailed": "3",
        "KaiwoAlertFires": "3",
        "KaiwoAlertsNotDelivered": "2",
    }
    summary = next(rule["annotations"]["summary"] for rule in rules() if rule["alert"] == alert)  # type: ignore[index]
    summary = summary.replace("{{ $value }}", values.get(alert, "1"))
    for label, value in LABELS.get(alert, {}).items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", value)
    return summary


@PROMTOOL
def test_prometheus_reads_the_metrics_that_are_served(tmp_path: Path) -> None:
    async def served() -> str:
        async with world(tmp_path) as kaiwo:
            return await kaiwo.metrics()

    text = run(served())
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert checked.returncode in (0, 3), checked.stderr  # 3: it could be read, but a name is against the conventions
    # A gauge with the label of a summary; it was served like this before, and names are kept.
    assert {line.split()[0] for line in checked.stderr.splitlines()} <= {"kaiwo_loop_lag_seconds"}, checked.stderr
