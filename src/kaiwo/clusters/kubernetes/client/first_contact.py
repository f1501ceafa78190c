"""The first word with an API server, for the person who waits at the terminal.

In:    an Access.   Out: nothing when it answers, else one sentence that names what is wrong and whose matter it is.
Never: gives up on a server that may come later: whoever asks goes on trying.
"""

from kaiwo.clusters.kubernetes.client.access import Access
from kaiwo.clusters.kubernetes.client.connection import Client
from kaiwo.clusters.kubernetes.client.errors import ApiError, UnreachableError

PATH = "/version"
ANSWER_S = 10.0
UNKNOWN = 401  # the credential is not taken, whatever was asked


async def first_contact(access: Access) -> str:
    """A program or a file that the kubeconfig names and that is not there raises ConfigError."""
    client = Client(access)
    try:
        await client.read(PATH, timeout_s=ANSWER_S, tries=1)
    except ApiError as error:
        return _unknown(access) if error.code == UNKNOWN else ""  # it is there, and says what it thinks of the rest
    except UnreachableError as error:
        return _silent(access, str(error).removeprefix(f"GET {PATH}: "))
    finally:
        await client.close()
    return ""


def _unknown(access: Access) -> str:
    return (
        f"the API server {access.server} does not take the credentials of {access.name or 'this kubeconfig'} "
        "(401 Unauthorized); renew its token or certificate"
    )


def _silent(access: Access, words: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in words:
        return (
            f"the API server {access.server} shows a certificate that the CA of {access.name or 'this kubeconfig'} did "
            f"not sign, or that is for another name ({words}); correct certificate-authority, or the server's address"
        )
    return f"the API server {access.server} cannot be reached: {words}"
