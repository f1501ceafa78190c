"""A piece of advice as words: what to do, what it brings, how that was checked, and the command for it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kaiwo.advise.advice import Advice, Gain, Moves, NodeMode, QuotaChange, SizeChange
from kaiwo.advise.right_size import Resized
from kaiwo.model.amounts import count, cpus, gpus, memory, rounded_duration, thousandths

HOUR_S = 3600
NAMED = 3
_WRITE: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "gpu_milli": ("GPU share", gpus),
    "gpu_mib": ("GPU memory", memory),
    "cpu_milli": ("CPU", cpus),
    "memory_mib": ("memory", memory),
}


class AdviceWords(NamedTuple):
    what: str
    gain: str
    evidence: str
    command: str  # that makes the change or shows it once more; empty: there is none


def advice_words(advice: Advice) -> AdviceWords:
    what, command = _change_words(advice)
    return AdviceWords(what, gain_words(advice.gain), _evidence(advice), command)


def resized_words(each: Resized) -> str:
    """`memory 6 GiB instead of 64 GiB (the last 6 runs used at most 3.9 GiB)`."""
    name, write = _WRITE[each.amount]
    runs = count(each.runs, "run")
    return (
        f"{name} {write(each.given)} instead of {write(each.asked)} (the last {runs} used at most {write(each.peak)})"
    )


def gain_words(gain: Gain) -> str:
    parts = []
    if gain.sooner:
        saved = rounded_duration(gain.saved_wait_s // max(1, gain.sooner))
        parts.append(f"{count(gain.sooner, 'workload')} {_starts(gain.sooner)} sooner, by {saved} on average")
    if now := gain.after.started_now - gain.before.started_now:
        parts.append(f"{now} of them at once" if gain.sooner > 1 and now > 0 else "at once" if now > 0 else "")
    if gain.saved_gpu_s >= HOUR_S // 10:
        parts.append(f"{gain.saved_gpu_s / HOUR_S:,.1f} GPU-hours less are held")
    if gain.later:
        parts.append(f"{count(gain.later, 'workload')} {_starts(gain.later)} later")
    return "; ".join(part for part in parts if part) or "less is held"


def _starts(number: int) -> str:
    return "starts" if number == 1 else "start"


def _change_words(advice: Advice) -> tuple[str, str]:
    match advice.change:
        case SizeChange():
            return _size_words(advice.change)
        case QuotaChange(queue, donor, (old, new), (donor_old, donor_new)):
            what = (
                f"give queue {queue} a quota of {gpus(new)} instead of {thousandths(old)}, and {donor}, which does not "
                f"use all of its own, {thousandths(donor_new)} instead of {thousandths(donor_old)}"
            )
            return what, f"kaiwo what-if --quota {queue}={new // 1000} --quota {donor}={donor_new // 1000}"
        case NodeMode(node, mode):
            return f"partition the GPUs of {node}, which is empty, in mode {mode}", (
                f"kaiwo what-if --partition {node}={mode}"
            )
        case Moves():
            return _move_words(advice.change)


def _size_words(change: SizeChange) -> tuple[str, str]:
    whose = f" of {change.user}" if change.user else ""
    what = f"let {change.name}{whose} in queue {change.queue} ask for {', '.join(map(resized_words, change.reasons))}"
    fields = {"gpu_milli": "gpuFraction", "gpu_mib": "gpuMemory", "cpu_milli": "cpu", "memory_mib": "memory"}
    values = [
        f"{fields[each.amount]}={f'{each.given}Mi' if each.amount.endswith('mib') else thousandths(each.given)}"
        for each in change.reasons
        if each.amount != "gpu_milli" or each.given < 1000
    ]
    return what, f"kaiwo set {change.waiting[0]} {' '.join(values)}" if change.waiting else ""


def _move_words(change: Moves) -> tuple[str, str]:
    named = [f"{each.workload} from {each.source} to {each.node}" for each in change.moves[:NAMED]]
    more = f" and {len(change.moves) - NAMED} more" if len(change.moves) > NAMED else ""
    who = ", ".join(change.starts[:NAMED]) + (
        f" and {len(change.starts) - NAMED} more" if len(change.starts) > NAMED else ""
    )
    what = f"move {', '.join(named)}{more}, which makes room for {who}"
    before, after = change.stranded_milli
    if before > after:
        what += f"; {gpus(before)} that nothing can use become {thousandths(after)}"
    return what, f"kaiwo defrag plan --for {change.workload}" if change.workload else "kaiwo defrag plan"


def _evidence(advice: Advice) -> str:
    gain, change = advice.gain, advice.change
    text = (
        f"checked by running the scheduler forward {rounded_duration(gain.until_s)} without and with it: "
        f"{count(gain.before.waiting, 'workload')} wait {rounded_duration(gain.before.wait_s)} in all without it, and "
        f"{rounded_duration(gain.after.wait_s)} with it"
    )
    if isinstance(change, Moves) and change.lost_gpu_s:
        text += f"; the moves lose {change.lost_gpu_s / HOUR_S:.1f} GPU-hours of work, which are counted"
    if gain.unknown:
        text += f"; {count(gain.unknown, 'workload')} of unknown run time never end there"
    return text
