"""Settings: one table, three sources, and mistakes that are told with their remedy."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from dq.core.networks import DEFAULT_DENY
from dq.core.settings import SETTINGS, Settings, SettingsError, load_settings, settings_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(config: str = "", **environ: str) -> Settings:
    if config:
        Path("dq.toml").write_text(config)
    return load_settings(None, environ)


def refusal(config: str = "", **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(config, **environ)
    return str(caught.value)


def test_defaults_are_those_of_the_contract(folder: Path) -> None:
    settings = load()
    assert settings == Settings(
        data_dir=folder / "data",
        log_dir=folder / "logs",
        api_host="127.0.0.1",
        api_port=6789,
        admin_host="127.0.0.1",
        admin_port=8088,
        tcp_port=0,
        redis_urls=(),
        database_url=f"sqlite+aiosqlite:///{folder}/data/dq.db",
        api_tokens=(),
        admin_password="",
        servers=1,
        timers=1,
        consumers=2,
        concurrency=500,
        buckets=4,
        retry_unit_s=60.0,
        max_retries=10,
        durability="disk",
        smtp_url="",
        mail_from="",
        callback_deny=tuple(DEFAULT_DENY),
        max_body=1048576,
    )


def test_the_environment_wins_over_the_file_which_wins_over_the_default() -> None:
    settings = load("servers = 2\ntimers = 2", DQ_TIMERS="3")
    assert (settings.servers, settings.timers, settings.consumers) == (2, 3, 2)


def test_an_empty_value_is_the_default() -> None:
    settings = load("redis_urls = 'redis://a'\nservers = ''", DQ_REDIS_URLS="", DQ_CONSUMERS=" ")
    assert (settings.redis_urls, settings.servers, settings.consumers) == ((), 1, 2)


def test_lists_are_written_with_commas_or_as_lists() -> None:
    assert load("api_tokens = ['a', 'b']").api_tokens == ("a", "b")
    assert load(DQ_API_TOKENS="a, b,").api_tokens == ("a", "b")


def test_a_comma_inside_a_sentinel_url_does_not_split_it() -> None:
    urls = "redis+sentinel://a:1,b:2/main,unix:///tmp/s, redis://c:3"
    assert load(DQ_REDIS_URLS=urls).redis_urls == (
        "redis+sentinel://a:1,b:2/main",
        "unix:///tmp/s",
        "redis://c:3",
    )


def test_another_file_can_be_named(folder: Path) -> None:
    (folder / "other.toml").write_text("consumers = 5")
    assert load_settings(Path("other.toml"), {}).consumers == 5
    with pytest.raises(SettingsError, match=r"none\.toml does not exist"):
        load_settings(Path("none.toml"), {})


def test_paths_are_absolute_and_the_database_follows_the_data(folder: Path) -> None:
    settings = load(DQ_DATA_DIR="here/there")
    assert settings.data_dir == folder / "here/there"
    assert settings.database_url == f"sqlite+aiosqlite:///{folder}/here/there/dq.db"


@pytest.mark.parametrize(
    ("config", "environ", "words"),
    [
        ("consumer = 3", {}, "dq.toml: consumer is no setting of dq; did you mean consumers?"),
        ("DQ_SERVERS = 3", {}, "did you mean servers?"),
        ("zzz = 3", {}, "zzz is no setting of dq; it knows data_dir, "),
        ("servers = true", {}, "dq.toml: servers must be a text, a number or a list of texts"),
        ("servers =", {}, "dq.toml is no TOML"),
        ("servers = 'two'", {}, "servers is 'two', not a whole number"),
        ("", {"DQ_CONSUMER": "3"}, "DQ_CONSUMER is no setting of dq; did you mean DQ_CONSUMERS?"),
        ("", {"DQ_API_PORT": "70000"}, "DQ_API_PORT is 70000; it must be from 0 to 65535"),
        ("", {"DQ_RETRY_UNIT": "0"}, "DQ_RETRY_UNIT is 0; it must be from 0.001"),
        ("", {"DQ_RETRY_UNIT": "nan"}, "DQ_RETRY_UNIT is nan"),
        ("", {"DQ_RETRY_UNIT": "soon"}, "DQ_RETRY_UNIT is 'soon', not a number of seconds"),
        ("", {"DQ_DURABILITY": "ram"}, "it must be disk, memory or replicated"),
        ("", {"DQ_REDIS_URLS": "http://a"}, "must begin with one of redis://, rediss://"),
        ("", {"DQ_DATABASE_URL": "mysql://a"}, "sqlite+aiosqlite://, mysql+aiomysql://"),
        ("", {"DQ_SMTP_URL": "mail.example"}, "must begin with one of smtp://"),
        ("", {"DQ_CALLBACK_DENY": "10.0.0.0/8,evil"}, "has 'evil', which is no network"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_remedy(
    config: str, environ: dict[str, str], words: str
) -> None:
    assert words in refusal(config, **environ)


def test_foreign_variables_are_left_alone() -> None:
    load(DQ_PORT="tcp://10.0.0.1:6789", DQ_SERVICE_HOST="10.0.0.1")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_an_open_api_without_a_token_is_refused(host: str) -> None:
    assert "set DQ_API_TOKENS" in refusal(DQ_API_HOST=host)
    assert load(DQ_API_HOST=host, DQ_API_TOKENS="t").api_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert load(DQ_API_HOST=host).api_host == host


def test_no_network_is_denied_when_told_so() -> None:
    assert load(DQ_CALLBACK_DENY="none").callback_deny == ()


def test_secrets_are_not_shown() -> None:
    settings = load(
        DQ_API_TOKENS="tok1",
        DQ_ADMIN_PASSWORD="pass1",
        DQ_REDIS_URLS="redis://me:pass2@a:1,rediss://:pass3@b:2",
        DQ_DATABASE_URL="mysql+aiomysql://me:pass4@db/dq",
        DQ_SMTP_URL="smtps://me:pass5@mail:465",
    )
    shown = repr(settings)
    assert "pass" not in shown.replace("admin_password", "")
    assert "tok1" not in shown
    assert "mysql+aiomysql://me:set@db/dq" in shown


def test_every_row_is_a_field_and_every_field_a_row() -> None:
    assert [row.field for row in SETTINGS] == [
        field.name for field in fields(Settings) if field.name != "embedded"
    ]


def test_the_settings_page_is_current() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert page == settings_page(), "run: bin/dq settings --markdown > docs/settings.md"


@pytest.mark.parametrize("urls", ["", "redis://a:1,redis+cluster://b:2"])
def test_replicated_is_refused_where_it_can_not_be_had(urls: str) -> None:
    with pytest.raises(SettingsError, match=r"DQ_DURABILITY=replicated .*use disk"):
        load(DQ_DURABILITY="replicated", DQ_REDIS_URLS=urls)
    assert load(DQ_DURABILITY="replicated", DQ_REDIS_URLS="redis://a:1")
