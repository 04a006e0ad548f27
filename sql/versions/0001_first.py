"""The first schema: topics, settings and the journal.

Frozen as released, so it names its types itself and takes nothing from dq/db/tables.py.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger()
WRITER = sa.LargeBinary().with_variant(mysql.BINARY(8), "mysql")
DIGEST = WRITER
VERSION = sa.LargeBinary().with_variant(mysql.BINARY(16), "mysql")
BLOB = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql")

INDEXES: dict[str, dict[str, list[str]]] = {
    "messages": {
        "ix_messages_job": ["digest", "version"],
        "ix_messages_state": ["state", "version"],
        "ix_messages_topic": ["topic", "state", "version"],
        "ix_messages_key": ["bkey", "version"],
    },
    "transitions": {"ix_transitions_version": ["version"]},
    "deaths": {
        "ix_deaths_transition": ["writer", "pos"],
        "ix_deaths_version": ["version"],
    },
}
UNIQUE = {"ix_deaths_transition"}
SQLITE_WHERE = {"ix_messages_key": sa.text("bkey <> ''")}
COUNTERS = ("topics", "deaths")


def exact(length: int) -> sa.types.TypeEngine[Any]:
    """Text that compares byte for byte."""
    return sa.Text().with_variant(mysql.VARBINARY(length), "mysql")


def key(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    """A column of the primary key."""
    return sa.Column(name, kind, primary_key=True, nullable=False, autoincrement=False)


def some(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    """A column that always holds a value."""
    return sa.Column(name, kind, nullable=False)


def table(name: str, *columns: sa.Column[Any]) -> None:
    """Make a table with its indexes, or what is still missing of them."""
    op.create_table(
        name,
        *columns,
        if_not_exists=True,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_row_format="DYNAMIC",
    )
    existing = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(name)}
    for index, parts in INDEXES.get(name, {}).items():
        if index not in existing:
            only = SQLITE_WHERE.get(index)
            op.create_index(index, name, parts, unique=index in UNIQUE, sqlite_where=only)


def upgrade() -> None:
    """Nothing -> 0001."""
    make_settings_and_topics()
    make_journal()


def make_settings_and_topics() -> None:
    """What people configure, and the counters."""
    table("settings", key("k", exact(255)), some("v", LONG_TEXT))
    table("topics", key("topic", exact(128)), some("doc", LONG_TEXT), some("rev", BIG))
    table("counters", key("name", exact(32)), some("value", BIG))
    connection = op.get_bind()
    counters = sa.table("counters", sa.column("name"), sa.column("value"))
    have = {
        name.decode() if isinstance(name, bytes) else name
        for (name,) in connection.execute(sa.select(counters.c.name))
    }
    for name in COUNTERS:
        if name not in have:
            connection.execute(counters.insert().values(name=name, value=0))


def make_journal() -> None:
    """What happened to each job."""
    table("cursors", key("writer", WRITER), some("pos", BIG), some("closed", sa.Boolean()))
    table(
        "messages",
        key("version", VERSION),
        some("topic", exact(128)),
        some("id", exact(1024)),
        some("digest", DIGEST),
        some("seq", BIG),
        some("bucket", exact(255)),
        some("stamp", BIG),
        some("due", BIG),
        some("created", BIG),
        some("priority", sa.SmallInteger()),
        some("timeout_ms", sa.Integer()),
        some("bkey", exact(1024)),
        some("body", BLOB),
        some("state", sa.SmallInteger()),
        some("attempt", sa.Integer()),
        some("changed", BIG),
        some("stub", sa.Boolean()),
    )
    make_transitions()


def make_transitions() -> None:
    """Each attempt and decision; deaths are numbered for the mails."""
    table(
        "transitions",
        key("writer", WRITER),
        key("pos", BIG),
        some("version", VERSION),
        some("stamp", BIG),
        some("at_ms", BIG),
        some("state", sa.SmallInteger()),
        some("attempt", sa.Integer()),
        sa.Column("status", sa.Integer()),
        some("detail", sa.Text()),
        some("reply", sa.Text()),
        some("url", sa.Text()),
        some("ms", BIG),
        sa.Column("due", BIG),
        some("process", exact(255)),
        some("host", exact(255)),
    )
    table(
        "deaths",
        key("no", BIG),
        some("writer", WRITER),
        some("pos", BIG),
        some("version", VERSION),
    )
