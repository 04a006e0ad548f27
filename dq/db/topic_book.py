"""The topics as every process sees them: in memory, from a file, so that SQL may be away.

SQL is the truth. Its topics are copied whole into one file (data/topics.json), written under a
lock and in one step; the other processes of the host see that it changed and read it again. One
process a host compares revisions once a second, which brings in what other hosts changed.

A book must never lose topics to a database that was made anew: one without any history takes the
file's topics instead of emptying the file.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from dq.core.errors import DatabaseAway
from dq.core.files import write_atomically
from dq.core.topic import Topic
from dq.db.repository import Repository, decode_topic, encode_topic

log = logging.getLogger(__name__)

_LOCK_WAIT_S = 15.0
_LOCK_STEP_S = 0.02


class _File(msgspec.Struct):
    revision: int
    topics: list[msgspec.Raw]


class TopicBook:
    """`repository` None makes a book that only follows the file."""

    def __init__(self, path: Path, repository: Repository | None) -> None:
        self._path = path
        self._repository = repository
        self._topics: dict[str, Topic] = {}
        self._revision: int | None = None
        self._seen: tuple[int, int, int] | None = None
        self.refresh()

    @property
    def revision(self) -> int:
        """Grows with every change of a topic that is known here; 0 when there never was one."""
        return self._revision or 0

    def get(self, name: str) -> Topic | None:
        """The topic of that name, None when it is not registered."""
        return self._topics.get(name)

    def all(self) -> list[Topic]:
        """All topics, by name."""
        return sorted(self._topics.values(), key=lambda topic: topic.topic)

    def refresh(self) -> bool:
        """Read the file again if it changed; True when it did. Costs one stat when not.

        A file that is missing or can't be read is reported once, and what was known stays.
        """
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return False
            self._seen = seen
            file = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError) as error:
            self._forget_file(error)
            return False
        read = [decode_topic(bytes(doc)) for doc in file.topics]
        self._topics = {topic.topic: topic for topic in read if topic is not None}
        self._revision = file.revision
        return True

    async def put(self, topic: Topic) -> bool:
        """Register or replace a topic, in SQL and in the file; True when it is new.

        Raises DatabaseAway: the outcome is unknown then, repeat it.
        """
        await self.sync()
        created = await self._truth().put_topic(topic)
        await self._rewrite()
        return created

    async def delete(self, name: str) -> bool:
        """Forget a topic; False when there was none. Raises DatabaseAway."""
        await self.sync()
        deleted = await self._truth().delete_topic(name)
        await self._rewrite()
        return deleted

    async def sync(self) -> bool:
        """Bring the file to what SQL has; True when it had to be written. Raises DatabaseAway."""
        changed = self.refresh()
        if await self._truth().topics_revision() == self._revision:
            return changed
        await self._rewrite()
        return True

    def _truth(self) -> Repository:
        if self._repository is None:
            raise DatabaseAway("this process has no connection to it")
        return self._repository

    def _forget_file(self, error: Exception) -> None:
        if isinstance(error, FileNotFoundError):
            self._seen = None
            if self._revision is None:
                return
        log.error("%s can't be read, it will be made anew from SQL: %s", self._path, error)
        self._revision = None

    async def _rewrite(self) -> None:
        """Copy SQL's topics into the file. Read under the lock, or an older list could win."""
        repository = self._truth()
        async with self._locked():
            self.refresh()
            revision, topics = await repository.topics_snapshot()
            if revision == 0 and self._topics:
                log.warning("the database has no topics; it gets the %d known", len(self._topics))
                for topic in self.all():
                    await repository.put_topic(topic)
                revision, topics = await repository.topics_snapshot()
            docs = [msgspec.Raw(encode_topic(topic).encode()) for topic in topics]
            data = msgspec.json.encode(_File(revision, docs))
            await asyncio.to_thread(write_atomically, self._path, data)
            self.refresh()

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        fd = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            async with asyncio.timeout(_LOCK_WAIT_S):
                while not _try_lock(fd):
                    await asyncio.sleep(_LOCK_STEP_S)
            yield
        except TimeoutError as error:
            raise DatabaseAway(f"{self._path.name} is being written by another process") from error
        finally:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
