"""A job's body for people: laid out when it is JSON, cut when it is long, and as a curl command.

What is shown is text of somebody else. Characters that steer how text runs (marks for writing from
right to left, controls) are shown by their numbers, so what is read is what is there.
"""

from __future__ import annotations

import json
import shlex
import unicodedata
from dataclasses import dataclass
from typing import Protocol

import msgspec

SHOWN_BYTES = 64 * 1024
CURL_BYTES = 16 * 1024


@dataclass(frozen=True)
class ShownBody:
    """`text`: to be put into a <pre>. `is_laid_out`: not as it came. `is_cut`: there is more."""

    text: str
    size: int
    is_json: bool
    is_laid_out: bool
    is_cut: bool


class Named(Protocol):
    """What a curl command says of a job."""

    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def priority(self) -> str: ...
    @property
    def key(self) -> str: ...


def show_body(body: bytes, is_raw: bool) -> ShownBody:
    """`is_raw`: as it came, even where it could be laid out."""
    laid_out = _lay_out(body)
    is_json = laid_out is not None
    chosen = body if is_raw or laid_out is None else laid_out
    text = chosen[:SHOWN_BYTES].decode(errors="replace" if len(chosen) <= SHOWN_BYTES else "ignore")
    return ShownBody(
        text=visible(text),
        size=len(body),
        is_json=is_json,
        is_laid_out=is_json and not is_raw,
        is_cut=len(chosen) > SHOWN_BYTES,
    )


def _lay_out(body: bytes) -> bytes | None:
    """JSON with line breaks, every number and text as it came; None for what is no JSON."""
    try:
        body.decode()
        return msgspec.json.format(body, indent=2)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def visible(text: str) -> str:
    """The same with each character that is not seen, or steers the others, by its number."""
    if text.isprintable():
        return text
    return "".join(one if _is_plain(one) else json.dumps(one)[1:-1] for one in text)


def _is_plain(one: str) -> bool:
    return one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def as_curl(job: Named, url: str, has_tokens: bool, body: ShownBody) -> str:
    """A command that pushes the job again under a new id; "" when the body is too long for one."""
    if body.size > CURL_BYTES:
        return ""
    document = {"topic": job.topic, "priority": job.priority}
    if job.key:
        document["key"] = job.key
    head = msgspec.json.encode(document).decode()
    plain = job.body.decode(errors="replace").replace("\r", "")  # in JSON it is only white space
    text = visible(plain or "null")
    data = shlex.quote(f'{head[:-1]},"body":{text}}}')
    lines = [f"curl -X POST {shlex.quote(url)}", "-H 'Content-Type: application/json'"]
    if has_tokens:
        lines.append('-H "Authorization: Bearer $DQ_TOKEN"')
    return " \\\n  ".join([*lines, f"-d {data}"])
