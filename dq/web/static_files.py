"""The style sheet, the script and the icon, under addresses that change with their content.

So a browser may keep them for a year and yet has the right ones after an upgrade. Read once, at
start; there is nothing else below /static/, whatever is asked for.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from aiohttp import web

from dq.web.visitor import open_to_all

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFiles:
    """All files of dq/web/static/."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._urls: dict[str, str] = {}
        self._files: dict[str, tuple[bytes, str]] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix in _TYPES:
                data = path.read_bytes()
                name = f"{path.stem}.{sha256(data).hexdigest()[:16]}{path.suffix}"
                self._urls[path.name] = f"/static/{name}"
                self._files[name] = (data, _TYPES[path.suffix])

    def url(self, name: str) -> str:
        """The present address of a file; KeyError for one that is not there."""
        return self._urls[name]

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/static/{name}", self.get)]

    @open_to_all
    async def get(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return web.Response(body=found[0], content_type=found[1], charset="utf-8", headers=headers)
