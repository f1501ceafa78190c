"""The page about gangs names the kinds that are asked, in their order, and sentences that gangs really say."""

import re

from kaiwo.clusters.kubernetes.gangs.kinds import training_jobs
from kaiwo.clusters.kubernetes.gangs.registry import KINDS
from tests.conformance.gangs.replay import replay
from tests.conformance.gangs.stories import STORIES
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "gangs.md").read_text()


def first_column(heading: str) -> list[str]:
    """The words of a table's first column."""
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def test_the_table_of_kinds_is_the_order_in_which_they_are_asked() -> None:
    assert first_column("asked") == list(KINDS)


def test_every_kind_has_a_story() -> None:
    told = {group.key.kind for story in STORIES.values() for group in replay(story["parents"], story["pods"])[0]}
    assert told >= {"gang", "PodGroup", "Workload", "LeaderWorkerSet", "Kueue pod group", "JobSet", "RayCluster", "Job"}
    assert told >= set(training_jobs.KINDS)


def test_the_sentences_of_the_page_are_those_of_the_code() -> None:
    folder = ROOT / "src" / "kaiwo" / "clusters" / "kubernetes" / "gangs"
    files = (*folder.rglob("*.py"), folder.parent / "cache" / "workload_unit.py")
    code = re.sub(r"\{[^{}]*\}", "...", " ".join(path.read_text() for path in files))
    for sentence in first_column("sentence"):
        words = sentence.strip(". ").removesuffix("(...)")
        assert all(part.strip() in code for part in words.split("...")), sentence
