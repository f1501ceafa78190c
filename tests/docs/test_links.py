"""Links lead somewhere, pictures exist, and the `make` targets that pages name are there."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES, anchors, blocks, images, links, page_code_words


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
    shown = [line for block in blocks(page) for line in block.text.splitlines()] + page_code_words(page)
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


# What decision 0008 chose and 0024 replaced; placeholders; a folder with a layer that does not exist yet; a prefix.
NOT_THERE = {"api/up.py", "bench/NAME.py", "controllers/", "KAIWO_HOME/runs/ID/", "kaiwo.silogen.ai/"}
KNOWN = {"/src/kaiwo/api/static/"} | {  # where the page is built
    f"/{path.relative_to(ROOT)}" + "/" * path.is_dir()
    for pattern in ("*", "src/**/*", "tests/**/*", "bench/*", "scripts/*", "deploy/*", "docs/*")
    for path in ROOT.glob(pattern)
}
WORDS = {
    word
    for pattern in ("src/**/*.py", "tests/**/*.py", "bench/*.py", "docs/benchmarks/*.json")
    for path in ROOT.glob(pattern)
    for word in re.findall(r"\w+", path.read_text())
}
OF_DEVELOPERS = {"CONTRIBUTING.md", "docs/architecture.md"} | {f"docs/decisions/{page.name}" for page in PAGES}


def is_known(name: str) -> bool:
    return any(path.endswith(f"/{name}") for path in KNOWN)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_module_and_folder_that_a_page_names_exists(page: Path) -> None:
    named = {word for word in page_code_words(page) if re.fullmatch(r"[\w/]+\.py|[\w./]+/", word)} - NOT_THERE
    assert sorted(name for name in named if not is_known(name)) == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_name_of_the_code_that_a_page_uses_exists(page: Path) -> None:
    if ids(page) == "CHANGELOG.md":
        return  # it also names what was renamed
    forms = r"[a-z]+(_[a-z0-9]+)+" + r"|([A-Z][a-z]+){2,}" * (ids(page) in OF_DEVELOPERS)
    named = {word.removesuffix("()") for word in page_code_words(page)}
    assert sorted(name for name in named - WORDS if re.fullmatch(forms, name)) == []


def test_every_module_and_value_of_the_drawings_in_architecture_exists() -> None:
    lines = [block.text for block in blocks(ROOT / "docs" / "architecture.md") if "─" in block.text]
    modules = {name for text in lines for name in re.findall(r"\b[a-z_]+(?:/[a-z_]+)+", text)}
    assert len(modules) > 15
    assert sorted(name for name in modules if not is_known(f"{name}.py")) == []
    values = {name for text in lines for name in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", text)}
    assert sorted(values - WORDS - {"Events"}) == []
