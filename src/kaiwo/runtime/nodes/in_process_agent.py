"""Run the node agent of this machine on a thread of `kaiwo up`.

Its lines are ignored while a separate agent streams the reports of this node.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kaiwo.devices.agent.node_agent import NodeAgent
from kaiwo.devices.agent.options import AgentOptions
from kaiwo.devices.agent_messages import Hello, Line
from kaiwo.model.errors import KaiwoError
from kaiwo.runtime.log import emit
from kaiwo.runtime.nodes.agent_registry import IN_PROCESS, AgentRegistry


class _EventLoopSender:
    """Hands the agent's lines from its thread to the event loop."""

    def __init__(self, agents: AgentRegistry) -> None:
        self._agents, self._loop = agents, asyncio.get_running_loop()
        self.hello: Callable[[], Hello]
        self._is_open = True

    def start(self) -> None:
        """Part of ReportSink; there is no connection to open."""

    def send(self, line: Line) -> None:
        if self._is_open:
            asyncio.run_coroutine_threadsafe(self._receive(line), self._loop)

    def close(self) -> None:
        self._is_open = False

    async def _receive(self, line: Line) -> None:
        agent = self._agents.of(line.node)
        try:
            if not isinstance(line, Hello) and (agent is None or agent.version != IN_PROCESS):
                await self._agents.receive(self.hello())  # a separate agent reported in between, and is gone
            await self._agents.receive(line)
        except KaiwoError as error:  # the store is closed or full: the next sample repeats it
            emit("watch-failed", level="warning", node=line.node, error=str(error))


@asynccontextmanager
async def in_process_agent(agents: AgentRegistry, node: str, root: str) -> AsyncIterator[None]:
    """Reports the machine every second while the block runs."""
    sender = _EventLoopSender(agents)
    log = lambda text: emit("watch", detail=text)  # noqa: E731
    agent = await asyncio.to_thread(NodeAgent, AgentOptions(node=node, root=root), log, None, sender)
    sender.hello = agent.hello
    thread = threading.Thread(target=agent.run, name="kaiwo-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sender.close()
        agent.stop()
        await asyncio.to_thread(thread.join, 5.0)
