"""POST JSON to an address that an administrator named, and say why it was not taken.

Never: follows a redirect, sends a token to another machine in the clear, connects to an address that `check_target`
refuses (also when a name leads to it), takes proxies or passwords from the environment, or puts the address or a
token into a message.
"""

import os
import socket
import ssl
from ipaddress import ip_address
from typing import Any, NamedTuple

import msgspec

from kaiwo.manifests.values.target_address import TargetError, check_target, is_refused
from kaiwo.telemetry.exporters.scrape import sends_in_the_clear

POST_S = 10.0


class NotTaken(NamedTuple):
    why: str
    is_final: bool  # the receiver will never take this message


async def post_json(url: str, body: Any, token: str = "", ca_file: str = "") -> NotTaken | None:
    """None: it was taken."""
    import aiohttp  # few have channels, and the import costs 20 MB
    from aiohttp.abc import AbstractResolver
    from aiohttp.resolver import ThreadedResolver

    class CheckedResolver(AbstractResolver):
        def __init__(self) -> None:
            self._plain = ThreadedResolver()

        async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> Any:
            found = await self._plain.resolve(host, port, family)
            allowed = [each for each in found if not is_refused(ip_address(each["host"].partition("%")[0]))]
            if not allowed:
                raise OSError("its name leads to an address that is refused")
            return allowed

        async def close(self) -> None:
            await self._plain.close()

    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    try:
        check_target(url)
        if token and sends_in_the_clear(
            url
        ):  # the address may come from a file, which was not there when it was checked
            return NotTaken("a token is only sent over https:// or to this machine", False)
        trust: Any = ssl.create_default_context(cafile=ca_file) if ca_file else True
        connector = aiohttp.TCPConnector(resolver=CheckedResolver(), ssl=trust)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=POST_S)) as session,
            session.post(url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False) as answer,
        ):
            status = answer.status
    except TargetError as error:
        return NotTaken(f"the address {error}", False)
    except TimeoutError:
        return NotTaken(f"no answer within {POST_S:g} s", False)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return NotTaken(_plain_cause(error), False)
    if status < 300:
        return None
    return NotTaken(f"HTTP status {status}", status in (400, 413, 415, 422))


def _plain_cause(error: BaseException) -> str:
    """What happened, without the address: errors of HTTP clients like to repeat it."""
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if isinstance(cause, ssl.SSLError):  # its number is none of the system's
        return f"TLS: {(cause.reason or 'refused').replace('_', ' ').lower()}"
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    return type(cause).__name__
