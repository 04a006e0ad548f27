"""JSON in and JSON out: reading a request's bytes within limits, writing an answer's.

It must never hold more of a request in memory than the call's limit, whatever `Content-Length`
says, and never wait for ever for a body that doesn't come.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict, MultiMapping

from dq.api.problems import Problem, Refused

BODY_DEADLINE_S = 60.0
"""How long a request's body may take to arrive."""

_JSON = "application/json"
_JSON_HEADERS = {
    "Content-Type": _JSON,
    "X-Content-Type-Options": "nosniff",
    "Server": "dq",
}
_encoder = msgspec.json.Encoder()


def answer_json(doc: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """`doc` as JSON; a msgspec.Raw in it goes out byte for byte."""
    merged = CIMultiDict(_JSON_HEADERS)
    if headers:
        merged.update(headers)
    return web.Response(body=_encoder.encode(doc), status=status, headers=merged)


async def read_json(request: web.Request, limit_bytes: int) -> bytes:
    """The request's body, when it says it is JSON. Raises Refused: 415, 413, 408, 400."""
    want_json(request.headers)
    return await _read_body(request, limit_bytes)


async def _read_body(request: web.Request, limit_bytes: int) -> bytes:
    if (request.content_length or 0) > limit_bytes:
        raise Refused(too_large(f"the request is over {limit_bytes} bytes"))
    content = request.content
    if content.is_eof():
        # It all came with the headers, as nearly every push does.
        whole = content.read_nowait()
    else:
        whole = await _read_slowly(request, limit_bytes)
    if len(whole) > limit_bytes:
        raise Refused(too_large(f"the request is over {limit_bytes} bytes"))
    return whole


async def _read_slowly(request: web.Request, limit_bytes: int) -> bytes:
    """Up to the first chunk beyond the limit."""
    content = request.content
    whole = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            while len(whole) <= limit_bytes and not content.at_eof():
                whole += await content.readany()
    except TimeoutError:
        raise Refused(too_slow()) from None
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise Refused(malformed(f"the request's body is broken: {error}")) from None
    except ConnectionError:
        raise Refused(malformed("the client hung up before its body was complete")) from None
    return bytes(whole)


def want_json(headers: MultiMapping[str]) -> None:
    """Raises Refused 415 where the head says that the body is anything but plain JSON."""
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Refused(_not_json("send the body uncompressed"))
    content_type = headers.get("Content-Type", "")
    if content_type == _JSON:
        return
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if media_type != _JSON:
        raise Refused(_not_json(f"its Content-Type is {content_type[:100]!r}"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            raise Refused(_not_json("JSON is UTF-8, no other charset is taken"))


def path_part(request: web.Request, index: int) -> str:
    """The `index`th part of the path, counted after the leading slash, decoded here from the
    bytes that came: only so does an id keep its %2F and %25. Raises Refused 400 if that is no
    UTF-8."""
    part = request.rel_url.raw_path.split("/")[index + 1]
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Refused(malformed(f"{part[:100]!r} in the path is no UTF-8")) from None


def malformed(detail: str) -> Problem:
    """400: what came can't be parsed at all."""
    return Problem(400, "malformed", "The request can't be parsed", detail)


def too_large(detail: str) -> Problem:
    """413. The rest of the request isn't read, so the connection ends with the answer."""
    return Problem(413, "too-large", "Too large", detail, closes=True)


def _not_json(why: str) -> Problem:
    return Problem(
        415,
        "media-type",
        "Only application/json is taken",
        f"send the body with Content-Type: application/json: {why}",
    )


def too_slow() -> Problem:
    """408. What came of the request is thrown away, so the connection ends with the answer."""
    detail = f"the body did not arrive within {BODY_DEADLINE_S:g} s"
    return Problem(408, "too-slow", "The request took too long", detail, closes=True)
