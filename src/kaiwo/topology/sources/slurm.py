"""Read Slurm's `topology.conf` and `topology.yaml`: trees of switches, and blocks.

In:    the text, or the document of a YAML file that was already read.   Out: a Topology.
A ConfigError names the line, or the switch, and the way out. `render_conf` writes a topology as `topology.conf`.

A switch that has nodes is a leaf, its level is the narrowest; the switches above it are spines, then cores. Aggregated
blocks (`BlockSizes=8,16,32`) are levels above the blocks, in the order in which the blocks are written, as Slurm does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.check_topology import check_name_length, check_topology, check_tree_cycle
from kaiwo.model.network.topology import Domain, FindingKind, NetworkLink, Topology, TopologyFinding, TopologyLevel
from kaiwo.topology.sources.hostlist import expand_hostlist, fold_hostlist

_SWITCH_KEYS = ("switchname", "switches", "nodes", "linkspeed")
_BLOCK_KEYS = ("blockname", "nodes")
_KEYS = ("SwitchName", "BlockName", "BlockSizes")
_TIERS = ("leaf", "spine", "core")
MAX_LINES = 1_000_000
_SHOWN = 60


class SlurmSwitch(NamedTuple):
    name: str
    switches: tuple[str, ...]
    nodes: tuple[str, ...]
    where: str


class SlurmBlock(NamedTuple):
    name: str
    nodes: tuple[str, ...]
    where: str


def read_topology_conf(text: str, name: str, where: str = "topology.conf") -> Topology:
    switches: list[SlurmSwitch] = []
    blocks: list[SlurmBlock] = []
    sizes: tuple[int, ...] = ()
    ignored: dict[str, str] = {}
    for number, line in _logical_lines(text):
        place = f"{where} line {number}"
        fields = _fields(line, place)
        if "switchname" in fields:
            switches.append(_switch(fields, place, ignored))
        elif "blockname" in fields:
            _check_keys(fields, _BLOCK_KEYS, place)
            block_nodes = expand_hostlist(_needed(fields, "nodes", place), place)
            blocks.append(SlurmBlock(_single(fields["blockname"], place), block_nodes, place))
        elif "blocksizes" in fields:
            sizes = _sizes(fields["blocksizes"].split(","), place)
        else:
            raise ConfigError(
                f"{place} begins with no key of {', '.join(_KEYS)}: {_cut(line)}; correct the line", place
            )
    findings = tuple(TopologyFinding(FindingKind.IGNORED, key, fact) for key, fact in ignored.items())
    if switches and blocks:
        raise ConfigError(f"{where} has both switches and blocks; Slurm reads only one kind, so remove the other")
    source = f"Slurm {where}"
    if blocks:
        return block_topology(blocks, sizes, name, where, source)
    return tree_topology(switches, name, where, source, findings)


def tree_topology(
    switches: Sequence[SlurmSwitch], name: str, where: str, source: str, findings: tuple[TopologyFinding, ...] = ()
) -> Topology:
    """Levels by the distance from the nodes."""
    if not switches:
        raise ConfigError(f"{where} names no switch; write a line such as SwitchName=leaf1 Nodes=n[1-4]", where)
    by_name: dict[str, SlurmSwitch] = {}
    parents: dict[str, list[str]] = {}
    for switch in switches:
        if switch.name in by_name:
            raise ConfigError(
                f"{switch.where} names the switch {switch.name} again; rename one of the two", switch.name
            )
        by_name[switch.name] = switch
    for switch in switches:
        for below in switch.switches:
            if below not in by_name:
                raise ConfigError(
                    f"{switch.where}: switch {switch.name} is above {below}, which has no line of its own; "
                    f"add SwitchName={below}",
                    switch.name,
                )
            parents.setdefault(below, []).append(switch.name)
    check_tree_cycle(parents, where)
    tier = _tiers(by_name)
    top = max(tier.values())
    levels = tuple(TopologyLevel(_tier_name(each)) for each in range(top, -1, -1))
    domains = tuple(
        Domain(each.name, _tier_name(tier[each.name]), tuple(parents.get(each.name, ())), each.nodes)
        for each in sorted(switches, key=lambda each: -tier[each.name])
    )
    links = tuple(NetworkLink(below, each.name) for each in switches for below in each.switches)
    topology = Topology(name, levels, domains, (), links, source, (*findings, *_not_connected(domains, levels)))
    check_topology(topology, where, is_tree=True)
    return topology


def _not_connected(domains: Sequence[Domain], levels: Sequence[TopologyLevel]) -> Iterator[TopologyFinding]:
    """Switches below no other one. Slurm allows them, and warns that no job can run on both sides."""
    widest = levels[0].name
    for domain in domains:
        if not domain.parents and domain.level != widest:
            fact = f"is below no other switch, so work that must run in one {widest} does not use its nodes"
            yield TopologyFinding(FindingKind.NOT_CONNECTED, domain.name, f"{fact}; check whether a line is missing")


def block_topology(blocks: Sequence[SlurmBlock], sizes: Sequence[int], name: str, where: str, source: str) -> Topology:
    """Blocks, and aggregates of neighbouring blocks for every size above the first."""
    if not blocks:
        raise ConfigError(f"{where} names no block; write a line such as BlockName=b1 Nodes=n[1-18]", where)
    steps = [size // sizes[0] for size in sizes[1:]] if sizes else []
    levels = [TopologyLevel(f"blocks-{step}") for step in reversed(steps)] + [TopologyLevel("block")]
    domains: list[Domain] = []
    for step, wider in zip(reversed(steps), [0, *reversed(steps)], strict=False):
        for at in range(0, len(blocks), step):
            above = (f"blocks-{wider}-{at // wider + 1}",) if wider else ()
            domains.append(Domain(f"blocks-{step}-{at // step + 1}", f"blocks-{step}", above))
    for at, block in enumerate(blocks):
        above = (f"blocks-{steps[0]}-{at // steps[0] + 1}",) if steps else ()
        domains.append(Domain(block.name, "block", above, block.nodes))
    topology = Topology(name, tuple(levels), tuple(domains), source=source)
    check_topology(topology, where, is_tree=True)
    return topology


def read_topology_yaml(entries: object, name: str, where: str = "topology.yaml") -> Topology:
    """The default topology of a `topology.yaml`, which was read into lists and mappings."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
        raise ConfigError(f"{where} is no list of topologies; begin each with `- topology: NAME`", where)
    chosen = next((entry for entry in entries if entry.get("cluster_default") is True), entries[0])
    place = f"{where}: topology {_text(chosen.get('topology'), where, 'topology')}"
    if "tree" in chosen or "block" in chosen:
        _check_keys(chosen, ("topology", "cluster_default", "tree", "block"), place)
    source = f"Slurm {place}"
    if isinstance(tree := chosen.get("tree"), dict):
        _check_keys(tree, ("switches",), place)
        switches = [
            SlurmSwitch(
                _text(item.get("switch"), place, "switch"),
                _hosts(item, "children", place),
                _hosts(item, "nodes", place),
                place,
            )
            for item in _mappings(tree, "switches", ("switch", "children", "nodes"), place)
        ]
        return tree_topology(switches, name, place, source)
    if isinstance(block := chosen.get("block"), dict):
        _check_keys(block, ("block_sizes", "blocks"), place)
        blocks = [
            SlurmBlock(_text(item.get("block"), place, "block"), _hosts(item, "nodes", place), place)
            for item in _mappings(block, "blocks", ("block", "nodes"), place)
        ]
        written = block.get("block_sizes", [])
        return block_topology(
            blocks, _sizes(written if isinstance(written, list) else [written], place), name, place, source
        )
    kinds = ", ".join(sorted(str(key) for key in chosen if key not in ("topology", "cluster_default")))
    raise ConfigError(f"{place} is of the kind {_cut(kinds) or 'none'}; Kaiwo reads tree and block", where)


def render_conf(topology: Topology) -> str:
    """A `topology.conf` with the domains of a tree, the widest first; blocks as blocks."""
    narrowest = topology.levels[-1].name
    if narrowest == "block":
        lines = [f"BlockName={each.name} Nodes={fold_hostlist(each.nodes)}" for each in topology.domains if each.nodes]
        return "\n".join(lines) + "\n"
    below: dict[str, list[str]] = {}
    for domain in topology.domains:
        for parent in domain.parents:
            below.setdefault(parent, []).append(domain.name)
    lines = []
    for domain in topology.domains:
        parts = [f"SwitchName={domain.name}"]
        if domain.name in below:
            parts.append(f"Switches={','.join(below[domain.name])}")
        if domain.nodes:
            parts.append(f"Nodes={fold_hostlist(domain.nodes)}")
        lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with continued ones joined, and the number of their first line."""
    held, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        if number > MAX_LINES:
            raise ConfigError(f"the text has more than {MAX_LINES:,} lines; give the file that Slurm reads")
        line = raw.split("#", 1)[0].rstrip()
        first = first if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        if whole := (held + line).strip():
            yield first, whole
        held = ""
    if held.strip():
        yield first, held.strip()


def _fields(line: str, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise ConfigError(f"{where} has {_cut(word)!r}, which is no KEY=VALUE; correct it", where)
        if key.lower() in found:
            raise ConfigError(f"{where} has {_cut(key)} twice; keep one of the two", where)
        found[key.lower()] = value
    return found


def _switch(fields: Mapping[str, str], where: str, ignored: dict[str, str]) -> SlurmSwitch:
    _check_keys(fields, _SWITCH_KEYS, where)
    if "linkspeed" in fields:
        ignored["LinkSpeed"] = "is ignored, as Slurm does: its unit is not defined"
    switches = expand_hostlist(fields["switches"], where) if "switches" in fields else ()
    nodes = expand_hostlist(fields["nodes"], where) if "nodes" in fields else ()
    name = _single(fields["switchname"], where)
    if not switches and not nodes:
        raise ConfigError(f"{where}: switch {_cut(name)} has neither Switches nor Nodes; add one of them", name)
    return SlurmSwitch(name, switches, nodes, where)


def _check_keys(fields: Iterable[object], known: Sequence[str], where: str) -> None:
    if (other := next((key for key in fields if key not in known), None)) is not None:
        raise ConfigError(f"{where} has the unknown key {_cut(str(other))}; write one of {', '.join(known)}", where)


def _needed(fields: Mapping[str, str], key: str, where: str) -> str:
    if key not in fields:
        raise ConfigError(f"{where} has no {key.capitalize()}; add {key.capitalize()}=n[1-4]", where)
    return fields[key]


def _single(name: str, where: str) -> str:
    if "," in name or "[" in name:
        raise ConfigError(f"{where}: {_cut(name)} names several at once; write one line for each", where)
    check_name_length(name, where)
    return name


def _sizes(values: Iterable[object], where: str) -> tuple[int, ...]:
    found: list[int] = []
    for value in values:
        size = int(str(value)) if str(value).isascii() and str(value).isdigit() and len(str(value)) < 10 else 0
        if size < 1 or (found and (size <= found[-1] or size % found[-1])):
            fact = f"{where} has the block size {_cut(str(value))}"
            raise ConfigError(f"{fact}; each size must be a multiple of the one before, such as 8,16,32", where)
        found.append(size)
    return tuple(found)


def _tiers(switches: Mapping[str, SlurmSwitch]) -> dict[str, int]:
    """By switch: how many switches lie below it on the longest way down. There is no cycle."""
    tier: dict[str, int] = {}
    left = [(name, False) for name in switches]
    while left:
        name, is_leaving = left.pop()
        if name in tier:
            continue
        below = switches[name].switches
        if is_leaving or not below:
            tier[name] = max((tier[each] + 1 for each in below), default=0)
        else:
            left.append((name, True))
            left += [(each, False) for each in below if each not in tier]
    return tier


def _tier_name(tier: int) -> str:
    return _TIERS[tier] if tier < len(_TIERS) else f"tier-{tier}"


def _mappings(holder: Mapping[str, object], key: str, known: Sequence[str], where: str) -> list[dict[str, object]]:
    items = holder.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ConfigError(f"{where}: {key} is no list of mappings; write one entry for each", where)
    for item in items:
        _check_keys(item, known, f"{where}: an entry of {key}")
    return items


def _hosts(item: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    value = item.get(key)
    return expand_hostlist(_text(value, where, key), where) if value is not None else ()


def _text(value: object, where: str, key: str) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool) or not str(value):
        raise ConfigError(f"{where}: {key} is missing or no text; write a name", where)
    check_name_length(str(value), where)
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
