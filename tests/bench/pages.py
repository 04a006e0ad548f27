"""How long each page of the admin takes with 10,000 topics and millions of jobs in the journal.

    python -m tests.bench.pages [MILLIONS [PATH]]

Fills an SQLite database in a throw-away folder, starts the whole program on it and asks for each
page as a browser does, or for those that begin with PATH. Five millions take some minutes to fill.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from dq.core.topic import Topic
from dq.db.counts import ALL_TOPICS, MINUTE_MS, Span
from dq.db.migrate import migrate
from dq.db.repository import encode_topic
from dq.db.tables import counts, topics
from tests.bench.rows import fill_jobs, insert_into
from tests.e2e.program import Program
from tests.web.browser import PASSWORD, Browser

TOPICS = 10_000
TIMES = 15
PAGES = (
    "/",
    "/topics",
    "/topics?q=topic77",
    "/topics?line=paused",
    "/topics/topic7",
    "/topics/topic7/edit",
    "/topics/topic7/rule",
    "/topics/-/new",
    "/jobs",
    "/jobs?topic=topic7",
    "/jobs?state=dead",
    "/jobs?state=delayed",
    "/jobs?key=key-4711",
    "/jobs?q=job-4999999",
    "/jobs/new",
    "/jobs/topic7/job-20007",
    "/dead",
    "/dead?cursor={cursor}",
    "/dead?cursor={middle}",
    "/dead?topic=topic7",
    "/dead?topic=topic3",
    "/dead?topic=never",
    "/dead?from={early}",
    "/dead?from={early}&to={later}",
    "/dead?from={early}&to={later}&topic=topic7",
    "/dead?from=2000000000000",
    "/dead?q=job-{dead}",
    "/dead?q=no+stock",
    "/dead?q=nobody+said+this",
    "/dead?topic=topic7&q=nobody",
    "/dead/confirm?act=redrive",
    "/dead/confirm?act=drop&topic=topic7",
    "/dead/confirm?act=drop&q=no+stock",
    "/dead/confirm?act=drop&q=job-{dead}",
    "/dead/confirm?act=drop&from={early}&to={later}",
    "/nodes",
    "/alerts",
    "/replay",
    "/access",
)


def main() -> None:
    count = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 5_000_000
    beginning = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory(prefix="dq-bench-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        path = folder / "data" / "dq.db"
        migrate(f"sqlite+aiosqlite:///{path}")
        began = time.monotonic()
        first_us = int(time.time() * 1e6) - count * 1000
        fill_jobs(path, count, first_us=first_us, topics=TOPICS, waiting_each=1000)
        _fill_topics(path)
        print(f"{count} jobs filled in {time.monotonic() - began:.0f} s", flush=True)
        pages = [page.format(**_places(path)) for page in PAGES if page.startswith(beginning)]
        program = Program(folder, DQ_ADMIN_PASSWORD=PASSWORD)
        program.ready_within_s = 600.0
        with program as dq:
            asyncio.run(_measure(f"http://127.0.0.1:{dq.environ['DQ_ADMIN_PORT']}", pages))


def _fill_topics(path: Path) -> None:
    minute_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    with sqlite3.connect(path) as database:
        database.executemany(
            insert_into(topics),
            (
                (name, encode_topic(Topic(topic=name, callback="http://127.0.0.1:9/")), 1 + number)
                for number in range(TOPICS)
                if (name := f"topic{number}")
            ),
        )
        database.execute("UPDATE counters SET value = ? WHERE name = 'topics'", (TOPICS,))
        some = [
            *((Span.TOTAL, f"topic{number}", 0) for number in range(TOPICS)),
            *(
                (Span.MINUTE, topic, minute_ms - minute * MINUTE_MS)
                for topic in (ALL_TOPICS, *(f"topic{number}" for number in range(0, TOPICS, 20)))
                for minute in range(60)
            ),
        ]
        figures = (500, 480, 7, 5, 2, 480, 90, 4_000)
        database.executemany(insert_into(counts), ((*key, *figures) for key in some))
    database.close()


def _places(path: Path) -> dict[str, object]:
    """What the addresses of PAGES name: `cursor` of the second page of dead jobs, `middle` of all;
    a minute a quarter of all deaths after the first one, and one `dead` job of then."""
    with sqlite3.connect(path) as database:
        (newest,) = database.execute("SELECT max(no) FROM deaths").fetchone()
        id_, early = database.execute(
            "SELECT id, created FROM deaths JOIN messages USING (version) WHERE no >= ? LIMIT 1",
            (newest // 4,),
        ).fetchone()
    database.close()
    places = {"cursor": newest - 50, "middle": newest // 2, "dead": id_.removeprefix("job-")}
    return {**places, "early": early, "later": early + MINUTE_MS}


async def _measure(base: str, pages: Sequence[str]) -> None:
    browser = Browser(base)
    assert (await browser.log_in()).status == 303
    slowest = 0.0
    for page in pages:
        spans = []
        for _ in range(TIMES):
            began = time.monotonic()
            reply = await browser.get(page)
            spans.append((time.monotonic() - began) * 1000)
            assert reply.status == 200, (page, reply.status, reply.words[:300])
        spans.sort()
        slowest = max(slowest, spans[-1])
        title = re.search(r"<title>([^<]*)", reply.text)
        print(
            f"{page:62} half {median(spans):6.0f} ms, most {spans[-1]:6.0f} ms, "
            f"{len(reply.text) // 1024:4} KB  {title[1] if title else ''}",
            flush=True,
        )
    print(f"slowest of all: {slowest:.0f} ms")
    await browser.close()


if __name__ == "__main__":
    main()
