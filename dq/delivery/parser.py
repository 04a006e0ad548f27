"""httptools' parser of replies, as callbacks want it, and its complaints in words."""

from __future__ import annotations

from httptools import HttpParserError, HttpParserInvalidStatusError, HttpResponseParser

from dq.delivery.reasons import broken_reply
from dq.delivery.reply import ENDLESS_INTERIM, MAX_INTERIM

_NO_HTTP = ("Expected HTTP/", "Invalid HTTP version")


def make_parser(protocol: object) -> HttpResponseParser:
    """As forgiving as browsers are about line ends and spaces, not about framing."""
    parser = HttpResponseParser(protocol)
    parser.set_dangerous_leniencies(
        lenient_headers=True,
        lenient_optional_cr_before_lf=True,
        lenient_spaces_after_chunk_size=True,
    )
    return parser


def parser_reason(error: HttpParserError, interim: int) -> str:
    """What is wrong with a reply before which `interim` others came."""
    if interim == MAX_INTERIM:
        return broken_reply(ENDLESS_INTERIM)
    text = str(error)
    is_no_status = isinstance(error, HttpParserInvalidStatusError) or text.startswith(_NO_HTTP)
    return broken_reply("Bad status line" if is_no_status else text)
