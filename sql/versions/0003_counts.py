"""How much went through each topic: by minute, by quarter of an hour, and in all.

Frozen as released, so it names its types itself and takes nothing from dq/db/tables.py.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NUMBERS = ("pushed", "delivered", "failed", "dead", "cancelled", "started")


def key(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    """A column of the primary key."""
    return sa.Column(name, kind, primary_key=True, nullable=False, autoincrement=False)


def number(name: str) -> sa.Column[Any]:
    """A column that always holds a number."""
    return sa.Column(name, sa.BigInteger(), nullable=False)


def upgrade() -> None:
    """0002 -> 0003."""
    op.create_table(
        "counts",
        key("span", sa.SmallInteger()),
        key("topic", sa.Text().with_variant(mysql.VARBINARY(128), "mysql")),
        key("at_ms", sa.BigInteger()),
        *(number(name) for name in NUMBERS),
        number("late_ms_max"),
        number("late_ms_sum"),
        if_not_exists=True,
        sqlite_with_rowid=False,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_row_format="DYNAMIC",
    )
    known = sa.inspect(op.get_bind()).get_indexes("counts")
    if "ix_counts_at" not in {index["name"] for index in known}:
        op.create_index("ix_counts_at", "counts", ["span", "at_ms"])
