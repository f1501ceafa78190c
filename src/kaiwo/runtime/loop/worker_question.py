"""Ask a worker process one question: it reads the job on its standard input, and answers on its standard output."""

import asyncio
import sys
from typing import NamedTuple

from kaiwo.model.errors import ClusterError


class WorkerQuestion(NamedTuple):
    module: str
    what: str  # what it does, as the subject of a sentence
    longest_s: float


async def ask_worker(question: WorkerQuestion, job: bytes) -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", question.module, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError as error:
        raise ClusterError(f"the worker for {question.what} did not start: {error}") from None
    try:
        async with asyncio.timeout(question.longest_s):
            answered, _ = await worker.communicate(job)
    except TimeoutError:
        raise ClusterError(f"{question.what} took longer than {question.longest_s:g} s; ask about less") from None
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    if worker.returncode:
        raise ClusterError(f"{question.what} ended with code {worker.returncode}; try again")
    return answered
