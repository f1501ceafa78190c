"""Whole GPUs that others may use, too: `gpu-sharing: "true"`, as shares that the ledger can count.

In:    a wish.   Out: whole GPUs with the flag as a share of each of them, with a note; any other wish as it was.
Never: gives out more than there is: who lets others on a GPU has a part of it on the books (docs/decisions/0023).
"""

from kaiwo.manifests.gpu_wishes import GpuWish, GpuWords
from kaiwo.manifests.places import Place
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.isolation import BY_TURNS, SHARED_MILLI, SHARERS, meets

SHARE_RESOURCE = "kaiwo.ai/gpu-share"  # what a kubelet counts of shares; elsewhere it asks for nothing


def as_shares(wish: GpuWish, words: GpuWords, warnings: list[str]) -> GpuWish:
    """Whole GPUs that may be shared become a share of each, unless somebody hands them out whole all the same."""
    if not wish.sharing:
        return wish
    _check(wish, words)
    if wish.fraction_milli is not None or wish.memory_mib is not None:
        return wish
    place, count = Place(words.owner, words.sharing), _count(wish, words)
    if not count:
        warnings.append(place.sentence(f"is ignored: no GPU is asked for; count them with {words.devices}"))
        return wish
    if wish.whole and words.kubelet_counts_whole:
        warnings.append(
            place.sentence(
                f"stands beside {words.whole}, and the kubelet hands out whole GPUs: it gets {count} whole, alone; to "
                f'share write {words.devices}: "{count}" and the resource {SHARE_RESOURCE}: {count} instead'
            )
        )
        return wish._replace(devices=None)
    shared = wish._replace(whole=0, fraction_milli=SHARED_MILLI, devices=count, isolation=wish.isolation or BY_TURNS)
    each = f"each of {count} GPUs" if count > 1 else "the GPU"
    warnings.append(
        place.sentence(
            f"counts as {SHARED_MILLI / WHOLE_MILLI:g} of {each}: up to {SHARERS} such workloads share one "
            f"by {shared.isolation}"
        )
    )
    return shared


def _check(wish: GpuWish, words: GpuWords) -> None:
    """What cannot be had beside others."""
    if wish.partition:
        raise Place(words.owner, words.sharing).error(
            f"lets others on whole GPUs, and {words.partition} asks for partitions, which are had alone; remove one "
            "of the two"
        )
    if wish.fraction_milli == WHOLE_MILLI:
        raise Place(words.owner, words.fraction).error(
            f"is all of a GPU, and {words.sharing} lets others on it; remove {words.fraction}, and count the GPUs with "
            f"{words.devices}"
        )
    if wish.fraction_milli is not None or wish.memory_mib is not None:
        return
    if wish.isolation == "partition":
        raise Place(words.owner, words.isolation).error(
            f'is "partition", which is had alone, and {words.sharing} lets others on the GPUs; remove one of the two'
        )
    is_by_turns = wish.isolation in ("", BY_TURNS)  # what other methods are worth, the devices say
    if wish.least_grade == "partition" or (is_by_turns and not meets(BY_TURNS, wish.least_grade)):
        raise _too_much(wish, words)


def _too_much(wish: GpuWish, words: GpuWords) -> ConfigError:
    place = Place(words.owner, words.grade)
    if wish.least_grade == "partition":
        return place.error(
            f'is "partition", which nobody has beside others, and {words.sharing} lets others on the GPUs; remove one '
            "of the two"
        )
    return place.error(
        f'is "{wish.least_grade}", and {words.sharing} alone is {BY_TURNS}; add {words.isolation}: cu-mask (AMD) or '
        "mps (NVIDIA), or remove one of the two"
    )


def _count(wish: GpuWish, words: GpuWords) -> int:
    """How many GPUs are meant: whole ones, or devices where no whole ones can be named."""
    if wish.whole and wish.devices not in (None, wish.whole):
        raise Place(words.owner, words.devices).error(
            f"is {wish.devices} and {words.whole} is {wish.whole}; beside {words.sharing} both count the GPUs: keep one"
        )
    return wish.whole or wish.devices or 0
