"""What every answer says about itself: nothing foreign runs, is loaded, framed, or kept."""

from __future__ import annotations

from aiohttp import web

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "dq",
}


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Called for every answer, whatever made it."""
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
