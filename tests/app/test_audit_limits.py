"""The options of the audit reach it, and a mistake in them is named."""

import pytest

from kaiwo.app.audit_limits import audit_limits
from kaiwo.app.options import UpOptions
from kaiwo.model.errors import ConfigError


def test_the_audit_is_kept_as_long_as_asked() -> None:
    assert audit_limits(UpOptions("home")) == {"audit_keep_s": 730 * 86_400, "audit_bytes": 10**9}
    chosen = UpOptions("home", audit_keep="7d", audit_size="5Gi")
    assert audit_limits(chosen) == {"audit_keep_s": 7 * 86_400, "audit_bytes": 5 << 30}
    with pytest.raises(ConfigError, match="--audit-keep"):
        audit_limits(UpOptions("home", audit_keep="long"))
