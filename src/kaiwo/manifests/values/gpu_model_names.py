"""Read GPU models and vendors by the names people give them: "mi300x", "AMD Instinct MI300X", "amd".

A Request has no vendor: any GPU of a vendor is written as the list of the vendor's models.
"""

import re

from kaiwo.manifests.text.field_errors import FieldPath, show, suggest
from kaiwo.model.gpus.gpu_models import GPU_MODELS, GPU_RESOURCES, VENDOR_MODELS, VENDORS

SIMILARITY = 0.75  # "gpus" and "gp" are misspellings of "gpu"; "gpumem" is another name
_BY_PLAIN_NAME = {name.lower(): name for name in GPU_MODELS}
_BRAND = re.compile(r"amd|nvidia|instinct|tesla|radeon|geforce|[-_ ]")


def read_models(names: tuple[str, ...], path: FieldPath, vendor: str, warnings: list[str]) -> tuple[str, ...]:
    """Known models by their name in the table, unknown ones as written with a warning; no names: all of the vendor."""
    if not names:
        return VENDOR_MODELS[vendor] if vendor else ()
    return tuple(sorted({_read_model(name, path, vendor, warnings) for name in names}))


def read_vendor(value: object, path: FieldPath) -> str:
    vendor = value.lower() if isinstance(value, str) else value
    if vendor not in VENDORS:
        raise path.error(f"is {show(value)}; write {' or '.join(VENDORS)}")
    return str(vendor)


def likely_gpu_resource(name: str) -> str:
    """`amd.com/gpu` for `amd.com/gpus` or `AMD/gpu`; empty if it is no misspelling of a known resource."""
    import difflib  # takes 4 ms, and only unknown names need it

    domain, _, kind = name.lower().partition("/")
    for resource in GPU_RESOURCES:
        right_domain, _, right_kind = resource.partition("/")
        if domain in (right_domain, right_domain.removesuffix(".com")):
            return resource if difflib.SequenceMatcher(None, kind, right_kind).ratio() >= SIMILARITY else ""
    return ""


def common_vendor(models: tuple[str, ...]) -> str:
    """The vendor of the known models; empty if there are two or none."""
    vendors = {GPU_MODELS[name].vendor for name in models if name in GPU_MODELS}
    return vendors.pop() if len(vendors) == 1 else ""


def _read_model(name: str, path: FieldPath, vendor: str, warnings: list[str]) -> str:
    if not name.strip() or len(name) > 63 or not name.isprintable():
        raise path.error(f"names the model {show(name)}; write a model such as MI300X")
    known = _BY_PLAIN_NAME.get(_BRAND.sub("", name.lower()))
    if known is None:
        hint = suggest(name, GPU_MODELS)
        warnings.append(path.sentence(f"names {show(name)}, which is not a known model: it waits for such a GPU{hint}"))
        return name.strip()
    if vendor and GPU_MODELS[known].vendor != vendor:
        raise path.error(f"names {known}, which is not made by {vendor}; change the model or the vendor")
    return known
