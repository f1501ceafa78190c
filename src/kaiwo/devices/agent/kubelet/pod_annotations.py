"""The devices that the scheduler wrote on a pod: how they are spelled there.

In:    shares.   Out: the annotation's text, and back.
"""

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpu import WHOLE_MILLI, Share

GRANTED_DEVICES = "kaiwo.ai/granted-devices"
ISOLATION = "kaiwo.ai/gpu-isolation"
LEAST_GRADE = "kaiwo.ai/gpu-isolation-grade"
SHARING = "kaiwo.ai/gpu-sharing"  # of GPUs that are asked for whole
SIZES = ("kaiwo.ai/gpu-fraction", "kaiwo.ai/gpu-memory")  # of a share; who names one asks for no whole GPU
SHARE_RESOURCE = "kaiwo.ai/gpu-share"


def encode_granted(shares: tuple[Share, ...]) -> str:
    """`[{"gpu":"0000:05:00.0","milli":500,"mib":98304}]`."""
    return msgspec.json.encode(shares).decode()


def decode_granted(text: str) -> tuple[Share, ...]:
    """ConfigError when it is no such list."""
    try:
        shares = msgspec.json.decode(text, type=tuple[Share, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{GRANTED_DEVICES} is not understood: {error}", GRANTED_DEVICES) from error
    for share in shares:
        if not share.gpu or not 0 <= share.milli <= WHOLE_MILLI or share.mib < 0:  # little memory is 0 milli
            raise ConfigError(f"{GRANTED_DEVICES} holds a share that cannot be: {share}", GRANTED_DEVICES)
    return shares
