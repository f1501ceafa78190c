"""Look after this machine's GPUs from inside `kaiwo up`: the node agent on a thread, without a stream.

In:    the roll of agents and this machine's node.   Out: the same lines that an agent of its own would send.
An agent that streams for this node speaks for itself; this one then keeps quiet.
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
from kaiwo.runtime.nodes.agent_registry import HERE, Agents


class _Inside:
    """From the agent's thread to the event loop."""

    def __init__(self, agents: Agents) -> None:
        self._agents, self._loop = agents, asyncio.get_running_loop()
        self.hello: Callable[[], Hello]
        self._is_open = True

    def start(self) -> None:
        """Nothing to open."""

    def send(self, line: Line) -> None:
        if self._is_open:
            asyncio.run_coroutine_threadsafe(self._hear(line), self._loop)

    def close(self) -> None:
        self._is_open = False

    async def _hear(self, line: Line) -> None:
        heard = self._agents.of(line.node)
        try:
            if not isinstance(line, Hello) and (heard is None or heard.version != HERE):
                await self._agents.hear(self.hello())  # an agent spoke in between, and is gone
            await self._agents.hear(line)
        except KaiwoError as error:  # the store is closed or full: the next second tells it again
            emit("watch-failed", level="warning", node=line.node, error=str(error))


@asynccontextmanager
async def watching(agents: Agents, node: str, root: str) -> AsyncIterator[None]:
    """While this is open, the machine is looked at every second."""
    inside = _Inside(agents)
    say = lambda text: emit("watch", detail=text)  # noqa: E731
    agent = await asyncio.to_thread(NodeAgent, AgentOptions(node=node, root=root), say, None, inside)
    inside.hello = agent.hello
    thread = threading.Thread(target=agent.run, name="kaiwo-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        inside.close()
        agent.stop()
        await asyncio.to_thread(thread.join, 5.0)
