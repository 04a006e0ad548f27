"""`dq migrate`: the database's schema, brought to what this version needs."""

from __future__ import annotations

import click

from dq.cli.options import config_option, load_chosen_settings
from dq.core.settings import SETTINGS, shown_value


@click.command()
@config_option
def migrate() -> None:
    """Create or upgrade the database's schema; `dq start` does so by itself."""
    from dq.db.migrate import migrate as bring_up_to_date  # SQLAlchemy, for this command only

    settings = load_chosen_settings()
    bring_up_to_date(settings.database_url)
    row = next(row for row in SETTINGS if row.key == "database_url")
    click.echo(f"{shown_value(row, settings)} is up to date")
