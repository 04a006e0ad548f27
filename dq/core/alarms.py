"""What people are told: those behind a topic when its jobs die, the operators of dq when a Redis
goes down and comes back.

Only the words: who sends them, and how often, is decided elsewhere. Many deaths make one mail
with a count and a sample. Whatever a job, an endpoint or an id holds, it can't break a line,
add a header or turn the text around: control and format characters are replaced.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from dq.core.clock import rfc3339

MAX_SAMPLE: Final = 20
_MAX_SUBJECT = 200
_MAX_REPLY = 500


class Death(msgspec.Struct, frozen=True):
    """A job whose last retry failed at `at_ms`; `detail` and `reply` are of that callback."""

    topic: str
    id: str
    attempts: int
    at_ms: int
    detail: str
    reply: str
    url: str


def compose_dead_mail(deaths: Sequence[Death], total: int, admin_url: str = "") -> tuple[str, str]:
    """Subject and text of the mail about `total` dead jobs, of which `deaths` are known.

    The first 20 of them are shown. `admin_url` is where the admin is reached, if that is known.
    """
    total = max(total, len(deaths))
    shown = deaths[:MAX_SAMPLE]
    blocks = [_headline(deaths, total)]
    if total > len(shown):
        blocks[0] += f" The first {len(shown)}:"
    blocks += [_describe(death) for death in shown]
    blocks.append(_advise(shown, admin_url))
    return _subject(deaths, total), "\n\n".join(blocks) + "\n"


def compose_down_mail(node: str, host: str, since_ms: int, reason: str) -> tuple[str, str]:
    """Subject and text when the node has been away since `since_ms`, as seen from `host`."""
    blocks = [
        f"Since {rfc3339(since_ms)} the Redis {node} does not answer dq on {host}:",
        f"  {clean_line(reason, _MAX_REPLY)}",
        "Pushes that belong there are answered 503 (repeat with the same id), its callbacks wait. "
        "Nothing accepted is lost. Another mail follows when it is back.",
    ]
    return clean_line(f"dq: Redis is down: {node}", _MAX_SUBJECT), "\n\n".join(blocks) + "\n"


def compose_back_mail(node: str, host: str, away_s: float, restored: int) -> tuple[str, str]:
    """Subject and text when the node is whole again; `restored` jobs were put back into it."""
    after = f"after {away_s:.0f} s" if away_s >= 1 else "at once"
    jobs = "1 job" if restored == 1 else f"{restored} jobs"
    lost = f"It had lost {jobs}; they are restored from dq's journal and logs."
    blocks = [
        f"The Redis {node} answers dq on {host} again {after}.",
        lost if restored else "It had lost nothing that had to be restored from the journal.",
        "What became due meanwhile is called back now.",
    ]
    subject = f"dq: Redis is back {after}, {jobs} restored: {node}"
    return clean_line(subject, _MAX_SUBJECT), "\n\n".join(blocks) + "\n"


def compose_mended_mail(host: str, restored: int, rescheduled: int) -> tuple[str, str]:
    """Subject and text when an audit found that a part of a node was lost."""
    jobs = "1 job" if restored + rescheduled == 1 else f"{restored + rescheduled} jobs"
    blocks = [
        f"dq on {host} compared Redis with its journal: {restored} unfinished jobs were missing "
        f"and {rescheduled} stood nowhere in their bucket. They are put back.",
        "Keys were deleted or thrown away. Look who else uses this Redis, and whether its "
        "maxmemory-policy is noeviction.",
    ]
    return f"dq: Redis had lost {jobs}, they are put back", "\n\n".join(blocks) + "\n"


def group_by_addresses(
    deaths: Iterable[tuple[Death, Sequence[str]]],
) -> dict[tuple[str, ...], list[Death]]:
    """Deaths by who hears of them, so that the same people get one mail; no address, no entry."""
    groups: dict[tuple[str, ...], list[Death]] = {}
    for death, addresses in deaths:
        if addresses:
            groups.setdefault(tuple(sorted(set(addresses))), []).append(death)
    return groups


def clean_line(text: str, max_length: int) -> str:
    """One line that is safe in a mail: nothing breaks, hides or turns text; never endless."""
    cut = text[:max_length]
    line = "".join(" " if c in "\r\n\t" else c if _is_plain(c) else "\ufffd" for c in cut)
    return line if len(text) <= max_length else f"{line}…"


def _is_plain(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] != "C" and category not in ("Zl", "Zp")


def _subject(deaths: Sequence[Death], total: int) -> str:
    if total == 1 and deaths:
        death = deaths[0]
        words = f"dq: job {death.id} of topic {death.topic} is dead"
    else:
        words = f"dq: {_count(total)}{_of_topics(deaths)}"
    return clean_line(words, _MAX_SUBJECT)


def _headline(deaths: Sequence[Death], total: int) -> str:
    what = "its last retry" if total == 1 else "their last retries"
    return clean_line(f"{_count(total)}{_of_topics(deaths)}: {what} failed.", _MAX_SUBJECT)


def _count(total: int) -> str:
    return "1 job is dead" if total == 1 else f"{total} jobs are dead"


def _of_topics(deaths: Sequence[Death]) -> str:
    topics = list(dict.fromkeys(death.topic for death in deaths))
    if not topics:
        return ""
    named = f" (topic {topics[0]}" if len(topics) == 1 else f" (topics {', '.join(topics[:3])}"
    more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""
    return f"{named}{more})"


def _describe(death: Death) -> str:
    rows = [
        ("topic", death.topic, 128),
        ("id", death.id, 256),
        ("attempts", str(death.attempts), 20),
        ("died at", rfc3339(death.at_ms), 40),
        ("reason", death.detail, _MAX_REPLY),
        ("reply", death.reply, _MAX_REPLY),
        ("url", death.url, 2048),
    ]
    return "\n".join(f"  {name:<9}{clean_line(text, most)}" for name, text, most in rows if text)


def _advise(shown: Sequence[Death], admin_url: str) -> str:
    lines = ["Dead jobs are kept until someone decides. When the endpoint is mended:"]
    page = f"{admin_url.rstrip('/')}/dead" if admin_url else "the admin's page /dead"
    lines.append(f"  look at them and redrive them: {clean_line(page, 300)}")
    if shown:
        names = (shown[0].topic, shown[0].id)
        path = "/".join(quote(name, safe="", errors="replace") for name in names)
        lines.append(f"  redrive one:  POST /v1/jobs/{path}/redrive")
    lines.append("  redrive many: POST /v1/dead/redrive, or see bin/dq dead --help")
    return "\n".join(lines)
