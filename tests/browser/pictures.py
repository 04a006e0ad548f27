"""The pictures of docs/admin.md: `python -m tests.browser.pictures docs/pictures`.

A whole dq with a small shop's jobs in it: some delivered, some retried, some dead, some that wait.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.async_api import Browser

from tests.browser.conftest import open_chromium
from tests.browser.person import Person, person_at
from tests.e2e.program import Program, free_port
from tests.e2e.receiver import Call, Receiver
from tests.support import wait_until
from tests.valkey import Valkey
from tests.web.browser import PASSWORD

MOST_BYTES = 150_000
FIRST = 48_100
"""The number of the first order."""

_TOPICS: dict[str, dict[str, object]] = {
    "order-unpaid": {
        "name": "cancel an order that nobody paid",
        "retry_if": "{res.code}!=200",
        "backoff": "10s,1m,5m",
        "max_retries": 3,
        "email": ["orders@shop.example"],
    },
    "invoice-mail": {"name": "send the invoice", "max_retries": 2, "backoff": "2s,5s"},
    "ticket-reminder": {"name": "remind of an open ticket", "concurrency": 20},
    "stock-sync": {"name": "tell the warehouse", "backoff": "2s,5s,1m"},
}


def _answer(call: Call) -> tuple[int, bytes]:
    """The shop: its invoices have trouble, its warehouse stumbles once in a while."""
    if "broken" in call.id:
        return 500, b'{"error": "template invoice-2 is missing"}'
    if "slow" in call.id and call.attempt < 3:
        return 503, b'{"error": "the warehouse is busy"}'
    return 200, b'{"code": 200}'


def fill(dq: Program, receiver: Receiver) -> None:
    """Topics and jobs as a small shop has them."""
    paths = {"order-unpaid": "/orders/expire", "invoice-mail": "/invoices/send"}
    for name, fields in _TOPICS.items():
        doc = {**fields, "callback": receiver.url + paths.get(name, f"/{name}")}
        assert dq.call("PUT", f"/v1/topics/{name}", doc).status == 201
    jobs = [_job("order-unpaid", "unpaid", number) for number in range(240)]
    jobs += [_job("stock-sync", "stock", number) for number in range(90)]
    jobs += [_job("invoice-mail", "invoice", number) for number in range(60)]
    jobs += [_job("invoice-mail", "invoice-broken", number) for number in range(60, 65)]
    jobs += [_job("stock-sync", "stock-slow", 91)]
    done = dq.call("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert done.status == 200, done.raw
    wait_until(lambda: dq.state("stock-sync", "stock-slow-48191") == "done", 60, "retried, done")
    dead = [f"invoice-broken-{FIRST + number}" for number in range(60, 65)]
    wait_until(lambda: {dq.state("invoice-mail", id_) for id_ in dead} == {"dead"}, 60, "dead")


def _job(topic: str, id_: str, number: int) -> dict[str, object]:
    """What the shop pushes about one of its orders; an order is left unpaid for a while."""
    order, chance = FIRST + number, random.Random(number)
    waits = {"delay": 60 + int(3500 * chance.betavariate(2, 3))} if id_ == "unpaid" else {}
    body = {"order": order, "customer": chance.randrange(7000, 7900), "lines": 1 + number % 4}
    return {"topic": topic, "id": f"{id_}-{order}", "body": body, "key": f"order-{order}", **waits}


@contextmanager
def _node(folder: Path) -> Iterator[str]:
    """A node with an address as people have them."""
    folder.mkdir()
    port = free_port()
    node = Valkey(folder, "--port", str(port)).start()
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        node.stop()


async def take(chromium: Browser, dq: Program, folder: Path) -> None:
    """All pictures."""
    async with person_at(chromium, dq) as person:
        await person.log_in()
        await person.see_figure("Dead", "5")
        await _shoot(person, "/", folder / "overview.png")
        await _shoot(person, "/topics/invoice-mail", folder / "topic.png")
        await person.go("/jobs/stock-sync/stock-slow-48191")
        await person.page.get_by_text("Details").first.click()
        await _shoot(person, "", folder / "job.png")
        await _shoot(person, "/dead", folder / "dead.png")
        for name in ("topics", "jobs", "nodes", "alerts", "replay", "access"):
            await _shoot(person, f"/{name}", folder / f"{name}.png")
        await person.page.emulate_media(color_scheme="dark")
        await _shoot(person, "/", folder / "overview-dark.png")


async def _shoot(person: Person, path: str, to: Path) -> None:
    if path:
        await person.go(path)
    await person.page.mouse.move(640, 799)
    await person.page.screenshot(path=to)
    size = to.stat().st_size
    assert size <= MOST_BYTES, f"{to} has {size} bytes"
    print(f"{to}: {size} bytes")


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        receiver = stack.enter_context(Receiver(_answer))
        urls = ",".join(stack.enter_context(_node(place / name)) for name in ("one", "two"))
        environ = {"DQ_ADMIN_PASSWORD": PASSWORD, "DQ_REDIS_URLS": urls}
        dq = stack.enter_context(Program(place, **environ))
        fill(dq, receiver)
        async with open_chromium() as chromium:
            await take(chromium, dq, folder)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
