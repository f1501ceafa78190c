"""Links lead somewhere, pictures exist, and the `make` targets that pages name are there."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES, anchors, blocks, code_words, images, links


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{ids(page)}: {link} is not there"
        if anchor:
            assert anchor in anchors(target), f"{ids(page)}: {link} names no heading of {target.name}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_picture_exists(page: Path) -> None:
    assert [image for image in images(page) if not (page.parent / image).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = [line for block in blocks(page) for line in block.text.splitlines()] + code_words(page.read_text())
    named = {found[1] for line in shown if (found := re.match(r"\s*make ([a-z-]+)", line))}
    assert named - targets == set()


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
    assert sorted(set(PAGES) - reached) == []


NOT_FILES = {"api/up.py", "bench/NAME.py"}  # what decision 0008 chose and 0024 replaced; a placeholder


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    folders = [ROOT / name for name in ("src", "tests", "bench", "scripts")]
    known = [f"/{path.relative_to(ROOT)}" for folder in folders for path in folder.rglob("*.py")]
    named = {word for word in code_words(page.read_text()) if re.fullmatch(r"[\w/]+\.py", word)} - NOT_FILES
    assert sorted(name for name in named if not any(path.endswith(f"/{name}") for path in known)) == []
