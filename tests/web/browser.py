"""A browser without eyes: keeps cookies, follows nothing, sends forms with their hidden fields."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import aiohttp
from yarl import URL

PASSWORD = "a good password"


@dataclass
class Reply:
    """An answer, read to its end."""

    status: int
    headers: Any
    text: str

    @property
    def location(self) -> str:
        return str(self.headers.get("Location", ""))

    @property
    def words(self) -> str:
        """What a person reads: the text of the page, without markup."""
        text = re.sub(r"(?s)<(script|style|head)\b.*?</\1>|<[^>]*>", " ", self.text)
        return " ".join(unescape(text).split())

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]*)"', self.text)
        return found[1] if found else ""


class Browser:
    """One visitor of the admin at `base`."""

    def __init__(self, base: str, **headers: str) -> None:
        self.base = base
        self.session = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True), headers=headers, auto_decompress=False
        )
        self.csrf = ""

    async def close(self) -> None:
        await self.session.close()

    async def send(self, method: str, path: str, **more: Any) -> Reply:
        """One request, as told."""
        url = URL(self.base + path, encoded=True)
        try:
            got = await self._send(method, url, **more)
        except aiohttp.ServerDisconnectedError:  # a kept connection of a process that is replaced
            got = await self._send(method, url, **more)
        self.csrf = got.csrf or self.csrf
        return got

    async def _send(self, method: str, url: URL, **more: Any) -> Reply:
        async with self.session.request(method, url, allow_redirects=False, **more) as reply:
            return Reply(reply.status, reply.headers, (await reply.read()).decode())

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.send("GET", path, headers=headers)

    async def see(self, path: str, *words: str, timeout_s: float = 30.0) -> Reply:
        """The page, once it says all of `words`: figures may be those of a moment ago."""
        async with asyncio.timeout(timeout_s):
            while True:
                reply = await self.get(path)
                if all(one in reply.words for one in words):
                    return reply
                await asyncio.sleep(0.05)

    async def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Reply:
        """A form with the CSRF token of the page that was seen last, unless it has its own."""
        data = {"csrf": self.csrf, **(fields or {})}
        return await self.send("POST", path, data=data, headers=headers)

    async def log_in(self, user: str = "admin", password: str = PASSWORD, to: str = "/") -> Reply:
        await self.get("/login")
        fields = {"user": user, "password": password, "next": to}
        reply = await self.post("/login", fields)
        if reply.status == 303:
            await self.get("/access")
        return reply

    def cookie(self, name: str) -> str:
        cookies = self.session.cookie_jar.filter_cookies(URL(self.base))
        return next((one.value for key, one in cookies.items() if key.startswith(name)), "")
