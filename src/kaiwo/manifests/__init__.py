"""Read what people write: manifests in YAML or JSON, the short form of a workload, policy files.

Fields that are not used here give warnings.
Never: raises anything but ConfigError for what a person wrote, or shows a secret in a message.
"""

from kaiwo.manifests.kinds.object_metadata import ManifestDefaults, Parsed
from kaiwo.manifests.parse import parse, parse_all
from kaiwo.manifests.short_form.submission_form import SUBMISSION_FORM
from kaiwo.manifests.text.read_documents import read_json
from kaiwo.manifests.workload_summary import describe_role, describe_workload

__all__ = [
    "SUBMISSION_FORM",
    "ManifestDefaults",
    "Parsed",
    "describe_role",
    "describe_workload",
    "parse",
    "parse_all",
    "read_json",
]
