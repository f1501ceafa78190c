"""An administrator switches plugins through the API, also those that are new in the file."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.api.world import world
from tests.plugins.sites import Site


@pytest.mark.parametrize("action", ["reload", "enable"])
def test_a_plugin_that_is_new_in_the_file_is_loaded_by_its_name(tmp_path: Path, action: str) -> None:
    site = Site(tmp_path / "site")
    site.plugin("known")
    site.allow("known")
    plugins = site.load()

    async def story() -> None:
        async with world(tmp_path / "home", nodes=1) as kaiwo:
            kaiwo.context.edge.plugins = plugins
            answer = await kaiwo.post(f"/plugins/fresh/{action}")
            assert answer.status_code == 404
            assert f"it is not installed, and not in {site.file}" in answer.text
            site.plugin("fresh")
            site.allow("fresh")
            answer = await kaiwo.post(f"/plugins/fresh/{action}")
            assert (answer.status_code, answer.json().get("state")) == (200, "active"), answer.text
            entry = (await kaiwo.get("/audit")).json()["items"][0]
            assert (entry["object"], entry["old"], json.loads(entry["new"])["state"]) == ("plugin/fresh", "", "active")

    try:
        asyncio.run(story())
    finally:
        plugins.close()
