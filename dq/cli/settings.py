"""`dq settings`: what is in force here."""

from __future__ import annotations

import click

from dq.cli.options import config_option, echo_json, json_option, load_chosen_settings
from dq.core.settings import SETTINGS, settings_page, shown_value


@click.command()
@click.option("--markdown", is_flag=True, help="The page docs/settings.md instead.")
@json_option
@config_option
def settings(markdown: bool, as_json: bool) -> None:
    """Show the settings in force; secrets are only said to be set."""
    if markdown:
        click.echo(settings_page(), nl=False)
        return
    chosen = load_chosen_settings()
    shown = {row.key: shown_value(row, chosen) for row in SETTINGS}
    if as_json:
        echo_json(shown)
        return
    for key, value in shown.items():
        click.echo(f"{key:16} {value}")
