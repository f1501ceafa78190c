"""Load the alert file, checked against what Kaiwo records, beside the rules that it has from the start."""

from functools import cache
from pathlib import Path

from kaiwo.history.series.measures import SubjectKind, measures_of
from kaiwo.manifests.alert_file import read_alert_settings
from kaiwo.model.alerts.channel import AlertSettings
from kaiwo.model.errors import ConfigError
from kaiwo.telemetry.alerts.default_rules import default_rules_text

MEASURES = {kind.value: [each.name for each in measures_of(kind)] for kind in SubjectKind}


@cache
def built_in_settings() -> AlertSettings:
    return read_alert_settings(default_rules_text(), MEASURES, "Kaiwo's own rules", is_built_in=True)


def load_alert_settings(path: str) -> AlertSettings:
    """Without a path, Kaiwo's own rules and no channels."""
    if not path:
        return built_in_settings()
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); name a file with alert rules", "alerts"
        ) from error
    return read_alert_settings(text, MEASURES, path, built_in_settings())
