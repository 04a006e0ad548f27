"""A request that is answered with words instead of what it asked for."""

from __future__ import annotations

from dq.core.errors import DqError
from dq.web.texts import Say


class Refusal(DqError):
    """`say` tells the person why, and what to do. `retry_after_s`: when it may be repeated."""

    def __init__(self, status: int, say: Say, retry_after_s: int = 0) -> None:
        self.status = status
        self.say = say
        self.retry_after_s = retry_after_s
        super().__init__(say.text)
