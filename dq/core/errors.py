"""What can go wrong between a person and dq, one class each.

`str(error)` is a sentence for a person and names the remedy where there is one; the attributes
are for the program that answers it. Nothing here knows HTTP: the API maps classes to statuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class DqError(Exception):
    """Base of every error that dq raises on purpose."""


class FieldError(msgspec.Struct, frozen=True):
    """One bad field. `field` is empty when the document itself is bad."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Invalid(DqError):
    """The request says something that can't be accepted; `errors` names each bad field."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(str(error) for error in self.errors))


class TopicUnknown(DqError):
    """No topic of that name is registered."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic!r} is not registered; register it first")


class TopicOffline(DqError):
    """The topic is registered, but takes no pushes now."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic!r} is off line and takes no jobs")


class DuplicateJob(DqError):
    """An unfinished job of that id exists and the push asked to be rejected then."""

    def __init__(self, topic: str, id: str) -> None:
        self.topic = topic
        self.id = id
        super().__init__(f"topic {topic!r} already has an unfinished job {id!r}")


class NodeAway(DqError):
    """The job's node didn't answer: whether the call took effect is unknown."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(
            f"the job's node is away ({detail}); the outcome is unknown, repeat with the same id"
        )


class Overloaded(DqError):
    """More waits to be written than dq can write soon; this call was not accepted."""

    def __init__(self) -> None:
        super().__init__("dq has too much to write just now; nothing was accepted, repeat later")


class DiskFull(DqError):
    """The log below the data folder can't grow, so nothing can be promised."""

    def __init__(self) -> None:
        super().__init__(
            "the disk below the data folder is full or broken; free some space, "
            "then repeat with the same id (the outcome is unknown)"
        )


class NodeFull(DqError):
    """The node has no memory left for another job; nothing was accepted."""

    def __init__(self) -> None:
        super().__init__(
            "the job's node is out of memory and nothing was accepted; "
            "give the node more memory or drain it, then repeat"
        )


class DatabaseAway(DqError):
    """The SQL database didn't answer in time, or not at all."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"the database is away ({detail}); repeat later")
