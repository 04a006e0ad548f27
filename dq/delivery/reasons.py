"""Why a callback brought no whole reply, in words a person can act on.

The sentences are short and stable: people count by them. They are one line without control
characters and repeat nothing of what a peer sent, except the names in its certificate.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
import unicodedata

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientOSError,
    ClientPayloadError,
    ClientResponseError,
    InvalidURL,
    NonHttpUrlClientError,
    ServerDisconnectedError,
)

MAX_LENGTH = 200

BROKE_OFF = "reply broke off"
NO_REPLY = "connection closed without a reply"
LONG_HEAD = "broken reply: headers too long"

_OS_REASONS = {
    errno.ECONNREFUSED: "connect refused",
    errno.ECONNRESET: "connection reset",
    errno.ECONNABORTED: "connection reset",
    errno.EPIPE: "connection reset",
    errno.ENETUNREACH: "network unreachable",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ETIMEDOUT: "connection timed out",
}
_NO_SUCH_NAME = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_DENIED = re.compile(r"address \S+ is denied \(DQ_CALLBACK_DENY\)")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_QUOTED = re.compile(r"\n|b'|b\"")
_LONG_HEAD = re.compile(r"Too many headers|Got more than \d+ bytes")
_EARLY_END = re.compile(r"[Nn]ot enough data")


class AddressDenied(OSError):
    """A socket was about to connect to an address of the deny list."""

    def __init__(self, ip: str) -> None:
        super().__init__(f"address {ip} is denied (DQ_CALLBACK_DENY)")


class CallFailed(Exception):
    """No whole reply; the text is the reason in words."""


def explain(error: BaseException, host: str) -> str:
    """The reason why a request to `host` failed, at most 200 characters on one line."""
    if isinstance(error, ClientConnectorError):
        return clean(_explain_connect(error, host))
    if isinstance(error, ssl.SSLError):
        return clean(explain_tls(error))
    if isinstance(error, ServerDisconnectedError):
        return BROKE_OFF
    if isinstance(error, ClientPayloadError):
        return _explain_payload(error)
    if isinstance(error, ClientResponseError):
        return broken_reply(error.message)
    if isinstance(error, InvalidURL):
        return clean(f"bad URL: {error.description or 'it names no host'}")
    if isinstance(error, NonHttpUrlClientError):
        return "bad URL: neither http nor https"
    if isinstance(error, ValueError):
        return clean(f"bad request: {error}")
    if isinstance(error, OSError):
        return clean(explain_os(error))
    return clean(f"{type(error).__name__}: {error}")


def clean(text: str) -> str:
    """`text` on one line, printable, at most 200 characters."""
    line = " ".join(text[: 4 * MAX_LENGTH].split())
    printable = "".join("?" if unicodedata.category(c)[0] == "C" else c for c in line)
    return printable if len(printable) <= MAX_LENGTH else printable[: MAX_LENGTH - 1] + "…"


def _explain_connect(error: ClientConnectorError, host: str) -> str:
    if isinstance(error, ClientConnectorDNSError):
        return explain_dns(error.os_error, host)
    cause: Exception = error.os_error
    if isinstance(error, ClientConnectorCertificateError):
        cause = error.certificate_error
    if isinstance(cause, ssl.SSLError):
        return explain_tls(cause)
    return explain_os(cause) if isinstance(cause, OSError) else f"TLS: {cause}"


def explain_dns(cause: OSError, host: str) -> str:
    """Why `host` has no address."""
    if cause.errno in _NO_SUCH_NAME:
        return f"DNS: no such host {host}"
    if cause.errno == socket.EAI_AGAIN:
        return f"DNS: no answer about {host}"
    return f"DNS: {host}: {cause.strerror or cause}"


def explain_tls(cause: ssl.SSLError) -> str:
    """Why there was no TLS; not yet cleaned of what a certificate says."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"TLS: {cause.verify_message}"
    return f"TLS: {(cause.reason or 'handshake failed').lower().replace('_', ' ')}"


def explain_os(cause: OSError) -> str:
    """What the system said, in dq's words where it has some.

    Several addresses make one error of several numbers in its text: "refused" says the most.
    """
    denied = _DENIED.search(str(cause))
    if denied:
        return denied[0]
    numbers = [cause.errno] if cause.errno else [int(n) for n in _ERRNO.findall(str(cause))]
    known = [number for number in numbers if number in _OS_REASONS]
    if known:
        return _OS_REASONS[errno.ECONNREFUSED if errno.ECONNREFUSED in known else known[-1]]
    if isinstance(cause, ConnectionError):
        return "connection reset"
    return f"connection failed: {cause.strerror or cause}"


def _explain_payload(error: ClientPayloadError) -> str:
    """aiohttp tells a body's early end and a body's bad framing apart only in its text."""
    text = str(error)
    cause = error.__cause__
    if _EARLY_END.search(text) or isinstance(cause, ClientOSError | ConnectionError):
        return BROKE_OFF
    return broken_reply(str(getattr(cause, "message", "") or text))


def broken_reply(message: str) -> str:
    """What is wrong with a reply, without the part of it that a parser quotes."""
    if _LONG_HEAD.match(message):
        return LONG_HEAD
    own_words = _QUOTED.split(message.strip(), maxsplit=1)[0].rstrip(": ")
    return clean(f"broken reply: {own_words or 'no HTTP'}")
