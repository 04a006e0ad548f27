"""Errors are sentences for people, with the facts beside them for programs."""

from __future__ import annotations

import pytest

from dq.core import errors


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.TopicUnknown("a.b"), "'a.b' is not registered"),
        (errors.TopicOffline("a"), "off line"),
        (errors.DuplicateJob("a", "42"), "unfinished job '42'"),
        (errors.NodeAway("timed out"), "(timed out); the outcome is unknown, repeat"),
        (errors.Overloaded(), "nothing was accepted"),
        (errors.DiskFull(), "free some space"),
        (errors.NodeFull(), "nothing was accepted"),
        (errors.DatabaseAway("refused"), "database is away (refused)"),
    ],
)
def test_an_error_says_what_happened_and_what_to_do(error: errors.DqError, words: str) -> None:
    assert words in str(error)


def test_invalid_names_every_bad_field() -> None:
    bad = [errors.FieldError("delay", "must be a number"), errors.FieldError("", "is no JSON")]
    error = errors.Invalid(bad)
    assert error.errors == bad
    assert str(error) == "delay: must be a number; is no JSON"
