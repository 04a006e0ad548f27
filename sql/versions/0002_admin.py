"""The admin's own tables: who changed what, and the API's tokens.

Frozen as released, so it names its types itself and takes nothing from dq/db/tables.py.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG = sa.BigInteger()
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # there only INTEGER counts by itself
DIGEST = sa.LargeBinary().with_variant(mysql.BINARY(32), "mysql")
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql")


def exact(length: int) -> sa.types.TypeEngine[Any]:
    """Text that compares byte for byte."""
    return sa.Text().with_variant(mysql.VARBINARY(length), "mysql")


def some(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    """A column that always holds a value."""
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    """0001 -> 0002."""
    make_table(
        "audit_log",
        sa.Column("no", NUMBER, primary_key=True, autoincrement=True),
        some("at_ms", BIG),
        some("who", exact(255)),
        some("address", exact(255)),
        some("host", exact(255)),
        some("action", exact(64)),
        some("target", exact(1024)),
        sa.Column("before", LONG_TEXT),
        sa.Column("after", LONG_TEXT),
    )
    make_table(
        "api_tokens",
        sa.Column("no", NUMBER, primary_key=True, autoincrement=True),
        some("name", exact(255)),
        some("digest", DIGEST),
        some("hint", exact(16)),
        some("made_ms", BIG),
        some("made_by", exact(255)),
        sa.Column("used_ms", BIG),
        sa.Column("revoked_ms", BIG),
    )
    make_index("audit_log", "ix_audit_log_target", ["target", "no"])
    make_index("api_tokens", "ix_api_tokens_digest", ["digest"], unique=True)


def make_table(name: str, *columns: sa.Column[Any]) -> None:
    """Make a table, unless a run that was killed has made it."""
    op.create_table(
        name,
        *columns,
        if_not_exists=True,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_row_format="DYNAMIC",
    )


def make_index(table: str, name: str, parts: list[str], *, unique: bool = False) -> None:
    """Make an index, unless it is there."""
    if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, parts, unique=unique)
