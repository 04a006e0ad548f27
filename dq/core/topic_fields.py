"""The rule for each field of a topic, one function each.

A check takes what JSON gave, answers the value as a Topic holds it, or raises ValueError with a
message that goes on after the field's name and says what would be right. It never raises
anything else: what comes in may be of any type, any length, and hostile.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from dq.core.backoff import parse_backoff
from dq.core.rule import parse_rule
from dq.core.signing import parse_secrets

METHODS = ("POST", "GET")
FORMATS = ("json", "form")
PRIORITIES = ("high", "normal", "low")

MAX_DELAY_S = 10 * 366 * 86400
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 0.1, 600
MAX_RETRIES = 1000
MAX_CONCURRENCY = 1_000_000
MAX_KEEP_DAYS = 3660
MIN_RATE, MAX_RATE = 0.00001, 1_000_000
MAX_LABEL = 200
MAX_URL = 2048
MAX_HEADERS = 64
MAX_HEADER_VALUE = 4096
MAX_ADDRESSES = 50

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_ADDRESS = re.compile(r"[!-?A-~]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_ADDRESS_PUNCTUATION = frozenset('<>()[]\\,;:"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_HOST = re.compile(r"[A-Za-z0-9_.\x80-\U0010ffff-]+")

# These frame or route a request, or are dq's own to say.
_FRAMING = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
    )
)
_OWN_PREFIXES = ("proxy-", "webhook-", "dq-")


def check_label(value: Any) -> str:
    """`name` and `creator`: a line of text."""
    text = _text(value, MAX_LABEL)
    if _has_control(text):
        raise ValueError("must be one line without control characters")
    return text


def check_callback(value: Any) -> str | None:
    """An http or https URL that can be called as it is; None for a pull topic."""
    if value is None:
        return None
    text = _text(value, MAX_URL)
    if not text:
        raise ValueError("must be a URL; leave it out or say null for a pull topic")
    if _has_control(text) or any(char.isspace() or char == "\\" for char in text):
        raise ValueError("must have no spaces, backslashes or control characters; %-encode them")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is no valid URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must carry no user or password; put them in headers as Authorization")
    if not host or port == 0 or not _is_host(host, bracketed="[" in parts.netloc):
        raise ValueError("must name a host, e.g. http://host:8080/path")
    return text


def check_method(value: Any) -> str:
    return _one_of(value, METHODS)


def check_format(value: Any) -> str:
    return _one_of(value, FORMATS)


def check_priority(value: Any) -> str:
    return _one_of(value, PRIORITIES)


def check_headers(value: Any) -> dict[str, str]:
    """Headers for every callback; none that frames, routes or is set by dq itself."""
    if not isinstance(value, dict):
        raise ValueError('must be an object of texts, e.g. {"Authorization": "Bearer x"}')
    if len(value) > MAX_HEADERS:
        raise ValueError(f"must be at most {MAX_HEADERS} headers")
    seen: set[str] = set()
    for name, text in value.items():
        _check_header(name, text)
        if name.lower() in seen:
            raise ValueError(f"{name} is given twice; upper and lower case are the same header")
        seen.add(name.lower())
    return dict(value)


def check_delay(value: Any) -> float:
    return _number(value, 0, MAX_DELAY_S, "seconds, from 0 to 10 years")


def check_timeout(value: Any) -> float:
    return _number(value, MIN_TIMEOUT_S, MAX_TIMEOUT_S, "seconds, from 0.1 to 600")


def check_max_retries(value: Any) -> int:
    return _whole(value, 0, MAX_RETRIES)


def check_concurrency(value: Any) -> int | None:
    return None if value is None else _whole(value, 1, MAX_CONCURRENCY, " or null for no limit")


def check_rate(value: Any) -> float | None:
    if value is None:
        return None
    words = "callbacks a second, above 0 (at least 0.00001) and up to 1000000, or null"
    return _number(value, MIN_RATE, MAX_RATE, words)


def check_email(value: Any) -> list[str]:
    """The addresses that hear of dead jobs."""
    if not isinstance(value, list):
        raise ValueError('must be a list of addresses, e.g. ["ops@example.com"]')
    if len(value) > MAX_ADDRESSES:
        raise ValueError(f"must be at most {MAX_ADDRESSES} addresses")
    for position, address in enumerate(value, 1):
        if not isinstance(address, str) or not _is_address(address):
            raise ValueError(f"address {position} must look like ops@example.com")
    return list(value)


def check_retry_if(value: Any) -> str:
    """The text of a rule; a mistake is told with its position."""
    if not isinstance(value, str):
        raise ValueError("must be text, e.g. {res.code}!=200")
    parse_rule(value)
    return value


def check_backoff(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('must be text, e.g. "2n+1", "exp:10s,1h" or "10s,1m,5m"')
    parse_backoff(value)
    return value


def check_secret(value: Any) -> str | None:
    """One or several signing secrets, separated by spaces."""
    if value is None:
        return None
    text = _text(value, 2048)
    parse_secrets(text)
    return text


def check_keep(value: Any) -> float:
    """`keep_done`, `keep_dead`: how long finished jobs are remembered."""
    return _number(value, 0, MAX_KEEP_DAYS, "days, up to 3660; 0 keeps them for ever")


def check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _text(value: Any, max_length: int) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    if len(value) > max_length:
        raise ValueError(f"must be at most {max_length} characters; it has {len(value)}")
    return value


def _one_of(value: Any, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
    return value


def _number(value: Any, least: float, most: float, words: str) -> float:
    """A finite number within bounds; true and false are none, though Python counts them."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(_clamped(value)) or not least <= value <= most:
        raise ValueError(f"must be a number of {words}")
    return float(value)


def _clamped(value: int | float) -> float:
    # An int can be too large for a float; whether it is finite isn't in question then.
    return value if isinstance(value, float) else 0.0


def _whole(value: Any, least: int, most: int, words: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"must be a whole number from {least} to {most}{words}")
    return value


def _check_header(name: str, text: Any) -> None:
    lower = name.lower()
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name[:64]!r} is no header name; use letters, digits and -")
    if lower in _FRAMING:
        raise ValueError(f"{name} frames or routes the request and can't be set")
    if lower.startswith(_OWN_PREFIXES):
        raise ValueError(f"{name} can't be set: Proxy-, DQ- and webhook- headers are reserved")
    if lower == "accept-encoding":
        raise ValueError("Accept-Encoding can't be set: replies are read uncompressed")
    if not isinstance(text, str) or len(text) > MAX_HEADER_VALUE:
        raise ValueError(f"{name} must be text of at most {MAX_HEADER_VALUE} characters")
    if _has_control(text.replace("\t", " ")):
        raise ValueError(f"{name} must be one line without control characters")


def _is_address(address: str) -> bool:
    """Plausible, not proven: only the mail server knows. Never with room for a second header."""
    if not _ADDRESS.fullmatch(address) or _ADDRESS_PUNCTUATION & set(address):
        return False
    return len(address) <= 254 and ".." not in address


def _is_host(host: str, bracketed: bool) -> bool:
    if bracketed:
        try:
            return ipaddress.ip_address(host).version == 6
        except ValueError:
            return False
    if len(host) > 253 or not _HOST.fullmatch(host):
        return False
    try:
        host.removesuffix(".").encode("idna")
    except UnicodeError:
        return False
    return True


def _has_control(text: str) -> bool:
    """Line breaks, other control characters, or halves of a surrogate pair."""
    return _CONTROL.search(text) is not None
