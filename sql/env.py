"""Alembic's way in. Only `dq.db.migrate` comes here: it holds the lock and gives the connection."""

from __future__ import annotations

from alembic import context

from dq.db.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run `bin/dq migrate`: it takes the lock without which two could collide")

context.configure(
    connection=connection,
    target_metadata=metadata,
    transactional_ddl=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
