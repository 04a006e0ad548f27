"""Mails about jobs that died: many deaths together are one mail, a minute at the least apart.

What has been mailed is remembered in SQL as the number of the last death told, so that a mail
server that is away, or a process that was killed, delays a mail and loses none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dq.core import alarms
from dq.core.errors import DatabaseAway
from dq.db import rows
from dq.db.journal_store import JournalStore
from dq.db.repository import Repository
from dq.db.topic_book import TopicBook
from dq.delivery.mail import Mailer, MailError
from dq.delivery.post import Post

_log = logging.getLogger(__name__)

GATHER_S = 2.0
"""After a first death: how long others may join the same mail."""
APART_S = 60.0
"""From one mail to the next, to the same people."""
AGAIN_S = 10.0
PAGE = 10_000
TOLD = "deaths_mailed"


class DeadMail:
    """Tells each topic's addresses of its deaths, through the mail server of `post`."""

    def __init__(
        self,
        store: JournalStore,
        repository: Repository,
        topics: TopicBook,
        post: Post,
        has_deaths: asyncio.Event,
    ) -> None:
        self._store = store
        self._repository = repository
        self._topics = topics
        self._post = post
        self._has_deaths = has_deaths
        self._has_deaths.set()
        self._sent: set[tuple[int, tuple[str, ...]]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_deaths.wait()
            self._has_deaths.clear()
            await asyncio.sleep(GATHER_S)
            try:
                has_told = await self.tick()
            except (MailError, DatabaseAway) as error:
                _log.error("the mail about dead jobs waits: %s", error)
                self._has_deaths.set()
                await asyncio.sleep(AGAIN_S)
                continue
            if has_told:
                await asyncio.sleep(APART_S - GATHER_S)

    async def tick(self) -> bool:
        """Mail all that has not been told; whether there was anything.

        Raises MailError, DatabaseAway; what was sent before is not sent again.
        """
        told = int(await self._repository.get_setting(TOLD) or 0)
        deaths = await self._store.deaths(told, PAGE)
        if not deaths:
            return False
        self._topics.refresh()
        pairs = ((_death(death), self._addresses(death.topic)) for death in deaths)
        for addresses, group in alarms.group_by_addresses(pairs).items():
            await self._tell(told, addresses, group)
        await self._repository.put_setting(TOLD, deaths[-1].no)
        self._sent.clear()
        return True

    def _addresses(self, name: str) -> Sequence[str]:
        topic = self._topics.get(name)
        return tuple(topic.email) if topic is not None else ()

    async def _tell(
        self, told: int, addresses: tuple[str, ...], group: Sequence[alarms.Death]
    ) -> None:
        if not addresses or (told, addresses) in self._sent:
            return
        subject, text = alarms.compose_dead_mail(group, len(group))
        mailer = await self._post.mailer()
        if mailer is None:
            _log.error(
                "no mail server; %s would have been told: %s\n%s",
                ", ".join(addresses),
                subject,
                text,
            )
        else:
            await self._send(mailer, addresses, subject, text)
        self._sent.add((told, addresses))

    async def _send(
        self, mailer: Mailer, addresses: tuple[str, ...], subject: str, text: str
    ) -> None:
        """Raises MailError when another try may help."""
        try:
            await mailer.send(list(addresses), subject, text)
        except MailError as error:
            if not error.is_final:
                raise
            _log.error("%s; it is not tried again: %s\n%s", error, subject, text)


def _death(row: rows.Death) -> alarms.Death:
    return alarms.Death(
        topic=row.topic,
        id=row.id,
        attempts=row.attempt,
        at_ms=row.at_ms,
        detail=row.detail,
        reply=row.reply,
        url=row.url,
    )
