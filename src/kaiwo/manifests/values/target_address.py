"""Check an address to which Kaiwo will send: HTTP or HTTPS, without a password in it, and not of this machine's cloud.

In:    a URL as it was written.   Out: nothing, or a TargetError whose text shows no secret.
Never: resolves a name. Whoever connects must check the address that it got with `is_refused`.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

MAX_URL = 2000


class TargetError(ValueError):
    """A clause that says what is wrong, and what to write."""


def check_target(url: str) -> None:
    if len(url) > MAX_URL or not url.isprintable() or " " in url:
        raise TargetError(f"must be an address without spaces, of at most {MAX_URL} characters")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise TargetError("is not an address; write it as https://alerts.example.com/path") from None
    if parts.scheme not in ("http", "https") or not host:
        raise TargetError("must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise TargetError("must not contain a user or password; use tokenFile")
    if parts.fragment:
        raise TargetError("must not have a part behind #; it is never sent")
    try:
        address = ip_address(host)
    except ValueError:
        return
    if is_refused(address):
        raise TargetError("is not an address to send to: link-local, multicast and unspecified ones are refused")


def is_refused(address: IPv4Address | IPv6Address) -> bool:
    """Link-local addresses give a cloud's credentials to whoever asks; nobody receives at the others."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_link_local or address.is_multicast or address.is_unspecified or _is_metadata(address)


def _is_metadata(address: IPv4Address | IPv6Address) -> bool:
    return str(address) in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")


def shown_target(url: str) -> str:
    """The part of an address that is no secret: `https://hooks.example.com/...`."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}" + ("/..." if parts.path.strip("/") or parts.query else "")
