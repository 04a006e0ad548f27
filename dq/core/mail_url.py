"""A mail server's URL and its parts: as a form shows them, and as a person may read it.

`smtp://`, `smtps://` or `smtp+starttls://user:password@host:port`, user and password %-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

PORTS = {"smtp": 25, "smtps": 465, "smtp+starttls": 587}
"""What each kind listens on where the URL names no port."""


@dataclass(frozen=True, slots=True)
class MailPlace:
    """`kind`: a key of PORTS. `port` None: the kind's own."""

    kind: str = "smtp+starttls"
    host: str = ""
    port: int | None = None
    user: str = ""
    password: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = host if self.port is None else f"{host}:{self.port}"
        if not self.user:
            return f"{self.kind}://{place}"
        login = quote(self.user, safe="")
        if self.password:
            login += f":{quote(self.password, safe='')}"
        return f"{self.kind}://{login}@{place}"


def parse_mail_url(url: str) -> MailPlace:
    """The parts of a URL. Raises ValueError, in words."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        known = ", ".join(f"{scheme}://" for scheme in PORTS)
        raise ValueError(f"a mail server is given as one of {known}, with a host")
    return MailPlace(
        parts.scheme,
        parts.hostname,
        parts.port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )


def hide_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{place}", query=""))
