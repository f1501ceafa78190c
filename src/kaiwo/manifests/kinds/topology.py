"""Read a KaiwoTopology: levels from node labels or from written domains, with the rates of links.

In:    a document of that kind, or a mapping with the fields of its `spec`.   Out: one Topology.
"""

from kaiwo.manifests.kinds.object_metadata import ManifestObject
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.names import check_label_key
from kaiwo.model.network.check_topology import (
    MAX_DOMAINS,
    MAX_LEVELS,
    MAX_NAME,
    check_joined_domains,
    check_orphans,
    check_topology,
)
from kaiwo.model.network.topology import MB_S_PER_GBIT, Domain, DomainAccess, NetworkLink, Topology, TopologyLevel

KIND, API_VERSION = "KaiwoTopology", "kaiwo.ai/v1alpha2"
MAX_GBPS = 1_000_000
MAX_LINKS = 10_000
MAX_RULES = 1_000
OUTSIDE = "outside"  # the upper end of links from a domain that names no parent


def read_topology(item: ManifestObject) -> Topology:
    topology = read_topology_spec(item.spec, item.name, item.owner, f"{KIND} {item.name}")
    item.read_labels()
    item.metadata.text_map("annotations")
    item.finish(strict=True)
    return topology


def read_topology_spec(spec: FieldReader, name: str, where: str, source: str) -> Topology:
    """All fields of a spec; those that the caller has read already may stand beside them."""
    levels = tuple(_level(level) for level in _limited(spec, "levels", MAX_LEVELS))
    written = _limited(spec, "domains", MAX_DOMAINS)
    links: list[NetworkLink] = []
    domains = tuple(_domain(domain, links) for domain in written)
    port_gbps, ports = spec.integer("nodePortGbps", 0, 0, MAX_GBPS), spec.integer("nodePorts", 0, 0, MAX_LINKS)
    access = read_access(spec)
    spec.finish(strict=True)
    topology = Topology(
        name,
        levels,
        domains,
        (),
        tuple(links),
        source,
        (),
        port_gbps * MB_S_PER_GBIT,
        ports or int(port_gbps > 0),
        access,
    )
    check_topology(topology, where)
    check_orphans(topology, where)
    check_joined_domains(topology, where)
    for at, level in enumerate(levels):
        if not level.node_label and not any(domain.level == level.name for domain in domains):
            fact = f"names level {level.name} without a nodeLabel, and no domain is of that level"
            raise spec.path_of(f"levels[{at}]").error(f"{fact}; add a nodeLabel or domains")
    return topology


def read_access(fields: FieldReader) -> tuple[DomainAccess, ...]:
    """`access`: rules about who may use which domains."""
    return tuple(_rule(rule) for rule in _limited(fields, "access", MAX_RULES))


def _rule(fields: FieldReader) -> DomainAccess:
    names = {key: _names(fields, key) for key in ("domains", "queues", "namespaces")}
    if not names["domains"]:
        raise fields.path_of("domains").error("names no domain; name those that the rule is about")
    if not fields.has("queues") and not fields.has("namespaces"):
        raise fields.path_of("queues").error(
            "is missing, and so is namespaces; write who may use the domains, or `queues: []` to close them to all work"
        )
    fields.finish(strict=True)
    return DomainAccess(**names)


def _limited(spec: FieldReader, name: str, most: int) -> list[FieldReader]:
    found = spec.items(name)
    if len(found) > most:
        raise spec.path_of(name).error(f"has {len(found):,} entries and the maximum is {most:,}; use fewer")
    return found


def _level(fields: FieldReader) -> TopologyLevel:
    label = fields.text("nodeLabel")
    if label:
        check_label_key(label, fields.path_of("nodeLabel"))
    gbps, uplinks = _uplinks(fields)
    level = TopologyLevel(_name(fields, "name"), label, gbps * MB_S_PER_GBIT, uplinks)
    fields.finish(strict=True)
    return level


def _domain(fields: FieldReader, links: list[NetworkLink]) -> Domain:
    domain = Domain(
        _name(fields, "name"),
        _name(fields, "level"),
        _names(fields, "parents"),
        _names(fields, "nodes"),
    )
    gbps, uplinks = _uplinks(fields)
    if gbps and uplinks:
        # Several parents share the links; the first ones have one more where they do not divide evenly.
        uppers = domain.parents or (OUTSIDE,)
        for at, upper in enumerate(uppers):
            if count := uplinks // len(uppers) + (at < uplinks % len(uppers)):
                links.append(NetworkLink(domain.name, upper, gbps * MB_S_PER_GBIT, count))
    fields.finish(strict=True)
    return domain


def _uplinks(fields: FieldReader) -> tuple[int, int]:
    """Gbit/s of one link out of a domain, and the number of links; a rate alone means one link."""
    gbps, uplinks = fields.integer("uplinkGbps", 0, 0, MAX_GBPS), fields.integer("uplinks", 0, 0, MAX_LINKS)
    return gbps, uplinks or int(gbps > 0 and not fields.has("uplinks"))


def _name(fields: FieldReader, key: str) -> str:
    name = fields.text(key)
    if not name:
        raise fields.path_of(key).error("is missing; write a name")
    _check_length(name, fields.path_of(key))
    return name


def _names(fields: FieldReader, key: str) -> tuple[str, ...]:
    """Each once, in the written order."""
    names = tuple(dict.fromkeys(fields.texts(key)))
    for at, name in enumerate(names):
        _check_length(name, fields.path_of(f"{key}[{at}]"))
    return names


def _check_length(name: str, path: FieldPath) -> None:
    if len(name) > MAX_NAME:
        raise path.error(f"has {len(name):,} characters and the maximum is {MAX_NAME}; shorten it")
