"""The SQL schema, as what the code believes; sql/versions/ makes it and a test holds them equal.

Names compare byte for byte everywhere: MariaDB's collations hold `x`, `X` and `x ` for one text,
and `e` and `é` too, so what identifies a job or a topic is VARBINARY there. A job's version is its
pages' order: 8 bytes of stamp, 8 of writer, so the primary key of `messages` is time.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

metadata = sa.MetaData()


class Exact(sa.types.TypeDecorator[str]):
    """Text that is equal only to the same bytes. `length` is bytes of UTF-8."""

    impl = sa.LargeBinary
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """VARBINARY on MySQL; SQLite's TEXT compares by bytes as it is."""
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.VARBINARY(self.length))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Bytes for MySQL, the text itself for SQLite."""
        return value.encode() if value is not None and dialect.name == "mysql" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Always text."""
        return value.decode() if isinstance(value, bytes) else value


def _bytes(length: int) -> sa.types.TypeEngine[bytes]:
    return sa.LargeBinary().with_variant(mysql.BINARY(length), "mysql")


def _blob() -> sa.types.TypeEngine[bytes]:
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")


def _long_text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql")


def _column(name: str, kind: Any, *, null: bool = False, key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=null, primary_key=key, autoincrement=False)


counters = sa.Table(
    "counters",
    metadata,
    _column("name", Exact(32), key=True),
    _column("value", sa.BigInteger()),
)
"""Numbers that only grow, taken inside the transaction that they number."""

settings = sa.Table(
    "settings",
    metadata,
    _column("k", Exact(255), key=True),
    _column("v", _long_text()),
)

topics = sa.Table(
    "topics",
    metadata,
    _column("topic", Exact(128), key=True),
    _column("doc", _long_text()),
    _column("rev", sa.BigInteger()),
)

cursors = sa.Table(
    "cursors",
    metadata,
    _column("writer", _bytes(8), key=True),
    _column("pos", sa.BigInteger()),
    _column("closed", sa.Boolean()),
)
"""How far each writer's log is in here; moves in the transaction of the rows it stands for."""

messages = sa.Table(
    "messages",
    metadata,
    _column("version", _bytes(16), key=True),
    _column("topic", Exact(128)),
    _column("id", Exact(1024)),
    _column("digest", _bytes(8)),
    _column("seq", sa.BigInteger()),
    _column("bucket", Exact(255)),
    _column("stamp", sa.BigInteger()),
    _column("due", sa.BigInteger()),
    _column("created", sa.BigInteger()),
    _column("priority", sa.SmallInteger()),
    _column("timeout_ms", sa.Integer()),
    _column("bkey", Exact(1024)),
    _column("body", _blob()),
    _column("state", sa.SmallInteger()),
    _column("attempt", sa.Integer()),
    _column("changed", sa.BigInteger()),
    _column("stub", sa.Boolean()),
    sa.Index("ix_messages_job", "digest", "version"),
    sa.Index("ix_messages_state", "state", "version"),
    sa.Index("ix_messages_topic", "topic", "state", "version"),
    sa.Index("ix_messages_key", "bkey", "version", sqlite_where=sa.text("bkey <> ''")),
)
"""One row a push. `stub`: only a change of it was seen so far, its body is still in some log."""

transitions = sa.Table(
    "transitions",
    metadata,
    _column("writer", _bytes(8), key=True),
    _column("pos", sa.BigInteger(), key=True),
    _column("version", _bytes(16)),
    _column("stamp", sa.BigInteger()),
    _column("at_ms", sa.BigInteger()),
    _column("state", sa.SmallInteger()),
    _column("attempt", sa.Integer()),
    _column("status", sa.Integer(), null=True),
    _column("detail", sa.Text()),
    _column("reply", sa.Text()),
    _column("url", sa.Text()),
    _column("ms", sa.BigInteger()),
    _column("due", sa.BigInteger(), null=True),
    _column("process", Exact(255)),
    _column("host", Exact(255)),
    sa.Index("ix_transitions_version", "version"),
)

deaths = sa.Table(
    "deaths",
    metadata,
    _column("no", sa.BigInteger(), key=True),
    _column("writer", _bytes(8)),
    _column("pos", sa.BigInteger()),
    _column("version", _bytes(16)),
    sa.Index("ix_deaths_transition", "writer", "pos", unique=True),
    sa.Index("ix_deaths_version", "version"),
)
"""The transitions to dead, numbered in the order in which they were committed."""


def _number() -> sa.Column[Any]:
    """Counted up by the database; SQLite does so for INTEGER alone."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("no", kind, primary_key=True, autoincrement=True)


audit_log = sa.Table(
    "audit_log",
    metadata,
    _number(),
    _column("at_ms", sa.BigInteger()),
    _column("who", Exact(255)),
    _column("address", Exact(255)),
    _column("host", Exact(255)),
    _column("action", Exact(64)),
    _column("target", Exact(1024)),
    _column("before", _long_text(), null=True),
    _column("after", _long_text(), null=True),
    sa.Index("ix_audit_log_target", "target", "no"),
)
"""Who changed what in the admin, and from where; never changed, never purged."""

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    _number(),
    _column("name", Exact(255)),
    _column("digest", _bytes(32)),
    _column("hint", Exact(16)),
    _column("made_ms", sa.BigInteger()),
    _column("made_by", Exact(255)),
    _column("used_ms", sa.BigInteger(), null=True),
    _column("revoked_ms", sa.BigInteger(), null=True),
    sa.Index("ix_api_tokens_digest", "digest", unique=True),
)
"""`digest`: SHA-256 of the token, which itself is nowhere. `hint`: how it begins."""

counts = sa.Table(
    "counts",
    metadata,
    _column("span", sa.SmallInteger(), key=True),
    _column("topic", Exact(128), key=True),
    _column("at_ms", sa.BigInteger(), key=True),
    *(_column(name, sa.BigInteger()) for name in ("pushed", "delivered", "failed", "dead")),
    *(_column(name, sa.BigInteger()) for name in ("cancelled", "started")),
    _column("late_ms_max", sa.BigInteger()),
    _column("late_ms_sum", sa.BigInteger()),
    sa.Index("ix_counts_at", "span", "at_ms"),
    sqlite_with_rowid=False,
)
"""What happened in a span of time from `at_ms` on, see dq/db/counts.py. Topic "": all topics."""
