"""Whoever asks for advice gets it, or learns why there is none: also when the search failed while nobody waited."""

import asyncio
from pathlib import Path

import pytest

from kaiwo.advise.advice import AdviceAnswer
from kaiwo.model.errors import KaiwoError
from kaiwo.runtime.advising import advisor as module
from kaiwo.runtime.advising.advising_jobs import AdvisingAnswer
from tests.api.world import world
from tests.waiting import run, until


def test_a_search_that_failed_unwatched_is_told_to_the_next_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            advisor, asked, gate = it.context.advisor, 0, asyncio.Event()

            async def ask(*_: object) -> AdvisingAnswer:
                nonlocal asked
                asked += 1
                await gate.wait()
                if asked == 1:
                    raise KaiwoError("looking for advice took longer than 120 s; ask about less")
                return AdvisingAnswer(advice=AdviceAnswer())

            monkeypatch.setattr(advisor, "_ask", ask)
            monkeypatch.setattr(module, "PATIENCE_S", 0)
            assert (await advisor.advice()).answer is None
            looking = advisor._looking
            assert looking is not None
            gate.set()
            await until(looking.done, "the end of the search")
            with pytest.raises(KaiwoError, match="longer than 120 s"):
                await advisor.advice()
            await advisor.advice()
            assert asked == 2, "another search begins"
            await until(lambda: advisor._last is not None, "its answer")
            assert (await advisor.advice()).answer == AdviceAnswer()

    run(story())
