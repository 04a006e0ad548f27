"""Reading the journal: restore's pages, search, deaths for the mailer, purging."""

from __future__ import annotations

import pytest

from dq.core.errors import Invalid
from dq.db import journal_store, search
from dq.db.journal_store import JournalStore
from dq.db.rows import State
from tests.sql.journal import SECOND, START, Writer, states


async def _ids(store: JournalStore, **wanted: object) -> list[str]:
    """What a search finds, page by page to its end."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.search(**wanted, cursor=cursor)  # type: ignore[arg-type]
        found += [job.id for job in page.jobs]
        if page.cursor is None:
            return found
        cursor = page.cursor


async def test_history_of_an_unknown_job_is_none(store: JournalStore) -> None:
    assert await store.history("t", "nobody") is None


async def test_history_is_of_the_newest_version(store: JournalStore) -> None:
    writer = Writer(store, "a")
    first = writer.push("1", 0)
    writer.change(first, 1, State.DONE, attempt=1)
    second = writer.push("1", 2)
    writer.change(second, 3, State.DELAYED, attempt=1, status=500, due=9)
    writer.change(second, 4, State.DEAD, attempt=2, status=502)
    await writer.ship()
    record = await store.history("t", "1")
    assert record is not None
    assert record.message.version == second.version
    assert [(line.state, line.status) for line in record.transitions] == [(0, 500), (1, 502)]


async def test_unfinished_comes_in_pages_by_version(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(25):
        push = writer.push(str(at), at)
        if at % 5 == 0:
            writer.change(push, SECOND, State.DONE)
    await writer.ship()
    after, pages, seen = b"", [], []
    while rows := await store.unfinished(after, 8):
        pages.append(len(rows))
        seen += [int(row.id) for row in rows]
        after = rows[-1].version
    assert pages == [8, 8, 4]
    assert seen == [at for at in range(25) if at % 5]


async def test_a_page_of_large_bodies_is_short(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_store, "PAGE_BYTES", 2500)
    writer = Writer(store, "a")
    for at in range(4):
        writer.push(str(at), at, body=b"x" * 1000)
    await writer.ship()
    page = await store.unfinished(b"", 10)
    assert [row.id for row in page] == ["0", "1"]
    assert [row.id for row in await store.unfinished(page[-1].version, 10)] == ["2", "3"]


async def test_search_is_newest_first_over_all_states(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at, state in enumerate([*State, *State, *State]):
        push = writer.push(str(at), at)
        if state not in (State.DELAYED, State.REPLACED):
            writer.change(push, SECOND, state)
    await writer.ship()
    newest_first = [str(at) for at in reversed(range(15))]
    assert await _ids(store, limit=4) == newest_first
    assert await _ids(store, limit=15) == newest_first
    assert await _ids(store, state=State.DEAD, limit=2) == ["11", "6", "1"]
    assert await _ids(store, state=State.DONE) == ["13", "8", "3"]


async def test_search_by_topic_key_and_time(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(10):
        writer.push(str(at), at * SECOND, topic=f"t{at % 2}", bkey=f"k{at % 3}")
    await writer.ship()
    begin_ms = START // 1000
    assert await _ids(store, topic="t1") == ["9", "7", "5", "3", "1"]
    assert await _ids(store, key="k0", limit=1) == ["9", "6", "3", "0"]
    assert await _ids(store, topic="t1", key="k0") == ["9", "3"]
    assert await _ids(store, from_ms=begin_ms + 2000, to_ms=begin_ms + 4000) == ["3", "2"]
    assert await _ids(store, to_ms=-5) == []
    assert await _ids(store, from_ms=2**62) == []


async def test_search_finds_text_in_id_key_and_body(store: JournalStore) -> None:
    writer = Writer(store, "a")
    writer.push("order-1", 0)
    writer.push("2", 1, bkey="order-2")
    writer.push("3", 2, body=b'{"no": "order-3", "who": "J\xc3\xb6rg"}')
    writer.push("4", 3, body=b"\x00\xff binary order-4")
    await writer.ship()
    assert await _ids(store, q="order-") == ["4", "3", "2", "order-1"]
    assert await _ids(store, q="Jörg") == ["3"]
    assert await _ids(store, q="ORDER") == []
    assert await _ids(store, q="%") == []
    assert await _ids(store, q="'; DROP TABLE messages; --") == []


async def test_a_text_search_ends_though_little_is_looked_at_in_one_step(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_ROWS", 7)
    writer = Writer(store, "a")
    for at in range(60):
        push = writer.push(str(at), at, body=b"needle" if at % 20 == 3 else b"hay")
        if at % 2:
            writer.change(push, SECOND, State.DONE)
    await writer.ship()
    assert await _ids(store, q="needle", limit=2) == ["43", "23", "3"]


async def test_search_shows_a_job_once_in_its_newest_version(store: JournalStore) -> None:
    writer = Writer(store, "a")
    dead = writer.push("1", 0, body=b"first")
    writer.change(dead, 1, State.DEAD, attempt=1)
    writer.push("1", 2, body=b"second")
    writer.push("1", 3, body=b"third" * 1000)
    await writer.ship()
    [job] = (await store.search()).jobs
    assert (job.state, job.size, job.preview) == (State.DELAYED, 5000, (b"third" * 1000)[:1024])
    assert await _ids(store, state=State.DEAD) == []


@pytest.mark.parametrize("cursor", ["", "x", "é", "A" * 21, "A" * 23, "!" * 22])
async def test_a_made_up_cursor_is_refused(store: JournalStore, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        await store.search(cursor=cursor)


async def test_deaths_come_in_the_order_of_shipping(store: JournalStore) -> None:
    late, early = Writer(store, "late"), Writer(store, "early")
    push = late.push("2", 50, topic="other")
    late.change(push, 60, State.DEAD, attempt=3, status=500, detail="HTTP 500", reply="no", url="u")
    first = early.push("1", 0)
    early.change(first, 1, State.DEAD, attempt=11)
    await late.ship()
    await early.ship()
    deaths = await store.deaths(0, 10)
    assert [(death.topic, death.id, death.attempt) for death in deaths] == [
        ("other", "2", 3),
        ("t", "1", 11),
    ]
    assert (deaths[0].detail, deaths[0].reply, deaths[0].url) == ("HTTP 500", "no", "u")
    assert deaths[0].at_ms == (START + 60) // 1000
    assert await store.deaths(deaths[0].no, 10) == deaths[1:]
    assert await store.deaths(deaths[1].no, 10) == []


async def test_purge_forgets_what_is_old_and_no_more(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(30):
        push = writer.push(str(at), at * SECOND)
        ends = {0: State.DONE, 1: State.DEAD, 2: State.DELAYED}[at % 3]
        if ends:
            writer.change(push, (at + 5) * SECOND, ends)
    await writer.ship()
    before_ms = (START + 20 * SECOND) // 1000
    removed, after = 0, b""
    while True:
        bite = await store.purge("t", State.DONE, before_ms, after, 2)
        removed, after = removed + bite.removed, bite.after
        if after is None:
            break
    assert removed == 5
    left = await states(store)
    assert sorted(int(id_) for id_, state in left.items() if state == "DONE") == [
        *(15, 18, 21, 24, 27)
    ]
    assert sum(state == "DEAD" for state in left.values()) == 10
    assert sum(state == "DELAYED" for state in left.values()) == 10
    assert await store.history("t", "0") is None
    with pytest.raises(ValueError, match="unfinished"):
        await store.purge("t", State.DELAYED, before_ms, b"", 10)


async def test_a_redriven_death_does_not_return_when_its_success_is_purged(
    store: JournalStore,
) -> None:
    writer = Writer(store, "a")
    dead = writer.push("1", 0)
    writer.change(dead, 1, State.DEAD)
    done = writer.push("1", 2)
    writer.change(done, 3, State.DONE)
    await writer.ship()
    bite = await store.purge("t", State.DONE, (START + SECOND) // 1000, b"", 100)
    assert (bite.removed, bite.after) == (2, None)
    assert await states(store) == {}
    assert await store.deaths(0, 10) == []
