"""The names of Kaiwo's pod annotations, and the encoding of the granted devices."""

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpu import WHOLE_MILLI, Share

GRANTED_DEVICES = "kaiwo.ai/granted-devices"
ISOLATION = "kaiwo.ai/gpu-isolation"
LEAST_GRADE = "kaiwo.ai/gpu-isolation-grade"
SHARING = "kaiwo.ai/gpu-sharing"  # of whole GPUs
SIZES = ("kaiwo.ai/gpu-fraction", "kaiwo.ai/gpu-memory")  # of a share; a pod with one of them asks for no whole GPU
SHARE_RESOURCE = "kaiwo.ai/gpu-share"


def encode_granted(shares: tuple[Share, ...]) -> str:
    """`[{"gpu":"0000:05:00.0","milli":500,"mib":98304}]`."""
    return msgspec.json.encode(shares).decode()


def decode_granted(text: str) -> tuple[Share, ...]:
    """Decode the annotation; ConfigError if it is invalid."""
    try:
        shares = msgspec.json.decode(text, type=tuple[Share, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{GRANTED_DEVICES} is invalid: {error}", GRANTED_DEVICES) from error
    for share in shares:
        if (
            not share.gpu or not 0 <= share.milli <= WHOLE_MILLI or share.mib < 0
        ):  # a share with little memory has 0 milli
            raise ConfigError(f"{GRANTED_DEVICES} contains an impossible share: {share}", GRANTED_DEVICES)
    return shares
