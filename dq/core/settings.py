"""Every setting of dq, in one table.

dq.toml, the environment, `dq start --help`, `dq settings` and docs/settings.md all come from
SETTINGS, so a setting that is not in the table does not exist, and one that is can't go
undocumented. The environment wins over dq.toml, which wins over the default; an empty value
means the default. What can't be right is refused here, before a process is started.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from dq.core.errors import DqError
from dq.core.networks import DEFAULT_DENY

Durability = Literal["disk", "memory", "replicated"]


class SettingsError(DqError):
    """A setting that dq can't start with; the text names the key and the remedy."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings a process runs with. Paths are absolute; `_s` are seconds.

    `embedded` is set by the master, which then also puts its Valkey's URL into `redis_urls`.
    """

    data_dir: Path
    log_dir: Path
    api_host: str
    api_port: int
    admin_host: str
    admin_port: int
    tcp_port: int
    redis_urls: tuple[str, ...]
    database_url: str
    api_tokens: tuple[str, ...]
    admin_password: str
    servers: int
    timers: int
    consumers: int
    concurrency: int
    buckets: int
    retry_unit_s: float
    max_retries: int
    durability: Durability
    smtp_url: str
    mail_from: str
    callback_deny: tuple[str, ...]
    max_body: int
    embedded: bool = False

    @property
    def embedded_url(self) -> str:
        """URL of the master's own Valkey; empty when the nodes are somebody else's."""
        return self.redis_urls[0] if self.embedded else ""

    def __repr__(self) -> str:
        shown = ", ".join(f"{row.key}={shown_value(row, self)}" for row in SETTINGS)
        return f"Settings({shown})"


class Setting(NamedTuple):
    """One row: `key` in dq.toml, how its text is read, what it means.

    `parse` raises ValueError with words that follow the key in a sentence.
    """

    key: str
    parse: Callable[[str], object]
    default: str
    unit: str
    sentence: str
    secret: bool = False
    attribute: str = ""

    @property
    def variable(self) -> str:
        return f"DQ_{self.key.upper()}"

    @property
    def field(self) -> str:
        return self.attribute or self.key


def _text(text: str) -> str:
    return text


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"is {text!r}, not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"is {number}; it must be from {low} to {high}")
        return number

    return parse


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"is {text!r}, not a number of seconds") from None
    if not 0.001 <= number <= 86_400:
        raise ValueError(f"is {text}; it must be from 0.001 to 86400 seconds")
    return number


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is {text!r}; it must be {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    return parse


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _url(*schemes: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text and not text.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            known = ", ".join(f"{scheme}://" for scheme in schemes)
            raise ValueError(f"is no URL that dq knows; it must begin with one of {known}")
        return text

    return parse


def _redis_urls(text: str) -> tuple[str, ...]:
    one = _url("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
    # A Sentinel's or Cluster's URL has commas of its own: only a new scheme starts a new URL.
    return tuple(one(part.strip(" ,")) for part in re.split(r",(?=\s*[a-z+]+://)", text) if part)


def _networks(text: str) -> tuple[str, ...]:
    if text == "none":
        return ()
    for part in _list(text):
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError:
            raise ValueError(f"has {part!r}, which is no network like 10.0.0.0/8") from None
    return _list(text)


SETTINGS: tuple[Setting, ...] = (
    Setting("data_dir", _path, "data", "folder", "What dq must not lose: logs, Valkey, SQLite."),
    Setting("log_dir", _path, "logs", "folder", "Logs for people, one file a day."),
    Setting("api_host", _text, "127.0.0.1", "address", "Where the producers' API listens."),
    Setting("api_port", _whole(0, 65535), "6789", "port", "Its port; 0 takes a free one."),
    Setting("admin_host", _text, "127.0.0.1", "address", "Where the web admin listens."),
    Setting("admin_port", _whole(0, 65535), "8088", "port", "Its port; 0 takes a free one."),
    Setting("tcp_port", _whole(0, 65535), "0", "port", "php-delayqueue's protocol; 0: off."),
    Setting(
        "redis_urls",
        _redis_urls,
        "",
        "URLs",
        "The nodes, with commas between: redis://, rediss://, unix://, "
        "redis+sentinel://host:port,host:port/SERVICE, redis+cluster://host:port. "
        "Empty: dq starts a Valkey of its own.",
    ),
    Setting(
        "database_url",
        _url("sqlite+aiosqlite", "mysql+aiomysql"),
        "sqlite+aiosqlite:///{data_dir}/dq.db",
        "URL",
        "Topics, history and settings; or mysql+aiomysql://user:password@host:port/db.",
    ),
    Setting(
        "api_tokens",
        _list,
        "",
        "tokens",
        "With one or more, /v1 wants Authorization: Bearer TOKEN. "
        "Needed to listen beyond loopback.",
        secret=True,
    ),
    Setting(
        "admin_password",
        _text,
        "",
        "text",
        "Password of the user admin. Empty: made at the first start, shown once, kept hashed.",
        secret=True,
    ),
    Setting("servers", _whole(0, 256), "1", "processes", "Processes that take pushes."),
    Setting("timers", _whole(0, 256), "1", "processes", "Processes that make due jobs ready."),
    Setting("consumers", _whole(0, 256), "2", "processes", "Processes that make callbacks."),
    Setting(
        "concurrency", _whole(1, 20_000), "500", "callbacks", "In flight per consumer process."
    ),
    Setting("buckets", _whole(1, 1024), "4", "buckets", "Buckets per node."),
    Setting(
        "retry_unit",
        _seconds,
        "60",
        "seconds",
        'One "minute" of the 2n+1 backoff; small in tests, so that none need wait.',
        attribute="retry_unit_s",
    ),
    Setting("max_retries", _whole(0, 1000), "10", "retries", "A topic's default of max_retries."),
    Setting(
        "durability",
        _one_of("disk", "memory", "replicated"),
        "disk",
        "",
        "When a push is answered. disk: it is in Redis and on this machine's disk; "
        "memory: synced within 50 ms after the answer; "
        "replicated: disk, and a replica of the node has it on its disk (WAITAOF: Redis 7.2 or "
        "Valkey, appendonly on at the replica; not for the embedded Valkey nor redis+cluster://).",
    ),
    Setting(
        "smtp_url",
        _url("smtp", "smtps", "smtp+starttls"),
        "",
        "URL",
        "Mail server: smtp://, smtps:// or smtp+starttls://user:password@host:port. "
        "Wins over what the alerts page has saved.",
    ),
    Setting("mail_from", _text, "", "address", "Sender of dq's mails."),
    Setting(
        "callback_deny",
        _networks,
        ",".join(DEFAULT_DENY),
        "networks",
        "Networks that a callback never connects to, in place of the default ones: link-local, "
        "multicast, unspecified and the clouds' metadata addresses, however they are spelt. "
        "none: every address is allowed.",
    ),
    Setting("max_body", _whole(1, 512 << 20), "1048576", "bytes", "One job's body at most."),
)


def load_settings(config: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read `config` (None: ./dq.toml if there is one) and `environ`.

    Raises SettingsError, whose text names the key, what is wrong and the remedy.
    """
    from_file = _read_config(config)
    _refuse_misspelt(environ)
    texts = {}
    values: dict[str, Any] = {}
    for row in SETTINGS:
        text, source = row.default, row.key
        if given := from_file.get(row.key, ""):
            text = given
        if row.variable in environ:
            text, source = environ[row.variable].strip() or row.default, row.variable
        texts[row.key] = text
        if row.key == "database_url":
            text = text.replace("{data_dir}", str(values["data_dir"]))
        try:
            values[row.field] = row.parse(text)
        except ValueError as error:
            raise SettingsError(f"{source} {error}") from None
    settings = Settings(**values)
    _refuse_open_api(settings)
    _refuse_lonely_nodes(settings)
    return settings


def shown_value(row: Setting, settings: Settings) -> str:
    """A setting's value for a person: secrets and passwords in URLs are not told."""
    value = getattr(settings, row.field)
    if row.secret:
        return "set" if value else ""
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return re.sub(r"://([^:/@\s]*):[^@\s]*@", r"://\1:set@", text)


def settings_page() -> str:
    """The text of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "<!-- Made from dq/core/settings.py by `dq settings --markdown`; change it there. -->",
        "",
        "Each setting is a key of `dq.toml` (`--config FILE`, or `./dq.toml` if it exists) and an",
        "environment variable, which wins. An empty value means the default. `dq settings` shows",
        "what is in force.",
        "",
        "| key | variable | default | unit | meaning |",
        "|---|---|---|---|---|",
    ]
    for row in SETTINGS:
        default = "see the meaning" if row.key == "callback_deny" else f"`{row.default}`"
        lines.append(
            f"| `{row.key}` | `{row.variable}` | {default if row.default else 'empty'} "
            f"| {row.unit} | {row.sentence} |"
        )
    return "\n".join(lines) + "\n"


def _read_config(config: Path | None) -> dict[str, str]:
    path = config or Path("dq.toml")
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if config is None:
            return {}
        raise SettingsError(f"{path} does not exist; --config names a file to read") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is no TOML: {error}") from None
    return {key: _as_text(path, key, value) for key, value in document.items()}


def _as_text(path: Path, key: str, value: object) -> str:
    known = [row.key for row in SETTINGS]
    if key not in known:
        plain = key.lower().removeprefix("dq_")
        raise SettingsError(f"{path}: {key} is no setting of dq{_did_you_mean(plain, known)}")
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(cast(list[str], value))
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value).strip()
    raise SettingsError(f"{path}: {key} must be a text, a number or a list of texts")


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Foreign DQ_ variables are common (a container's links); a near miss is a mistake."""
    known = [row.variable for row in SETTINGS]
    for name in environ:
        if name.startswith("DQ_") and name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.85)
            if near:
                raise SettingsError(f"{name} is no setting of dq; did you mean {near[0]}?")


def _did_you_mean(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else f"; it knows {', '.join(known)}"


def _refuse_open_api(settings: Settings) -> None:
    if not settings.api_tokens and not _is_loopback(settings.api_host):
        raise SettingsError(
            f"DQ_API_HOST is {settings.api_host!r}, which others can reach, and there is no token; "
            "set DQ_API_TOKENS, or listen on 127.0.0.1"
        )


def _refuse_lonely_nodes(settings: Settings) -> None:
    if settings.durability != "replicated":
        return
    if not settings.redis_urls:
        raise SettingsError(
            "DQ_DURABILITY=replicated needs a Redis with a replica, which the embedded Valkey has "
            "not; give DQ_REDIS_URLS, or use disk"
        )
    for url in settings.redis_urls:
        if url.startswith("redis+cluster:"):
            raise SettingsError(
                "DQ_DURABILITY=replicated can't be had with redis+cluster://; name its masters' "
                "replica sets by redis+sentinel://, or use disk"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
