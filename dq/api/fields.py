"""Reading a JSON object into typed fields: fast when it is right, talkative when it is not.

The bytes are decoded once, by msgspec, which knows the fields. Only when that fails are they
looked at again, field by field, to name everything that is wrong. A msgspec.Raw field keeps the
bytes that came. No input may raise anything but Invalid and Refused, however deep, long or broken.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from dq.api.problems import Refused
from dq.api.wire import malformed
from dq.core.errors import FieldError, Invalid

T = TypeVar("T", bound=msgspec.Struct)

MAX_REPORTED = 20
"""Faults named in one answer: a thousand misspelt fields must not cost a thousand searches."""

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# What is right, many escapes at a time, or one that has lost its other half. Without possessive
# repeats: those of Python 3.11.2 miss matches.
_ESCAPES = re.compile(
    rb"""(?: (?: \\ (?: [^u] | u (?! [dD][89a-fA-F] ) )
        | \\u[dD][89abAB][0-9a-fA-F]{2} \\u[dD][c-fC-F][0-9a-fA-F]{2}
        ) [^\\]*
    ){1,1000}
    | ( \\u[dD][89a-fA-F][0-9a-fA-F]{2} )""",
    re.VERBOSE | re.DOTALL,
)
MAX_MASKED = 10_000
_MARKS = tuple(b"\\ufdd%x" % digit for digit in range(16))


class Fields(Generic[T]):
    """The fields of one kind of JSON object."""

    def __init__(
        self,
        shape: type[T],
        wants: Mapping[str, str],
        check: Callable[[T], list[FieldError]] = lambda fields: [],
    ) -> None:
        """`shape`: refuses unknown fields. `wants`: for each field, what it must be, in words.
        `check`: what is wrong with values that have the right type."""
        self._shape = shape
        self._wants = wants
        self._check = check
        self._decoder = msgspec.json.Decoder(shape)
        self._infos = {info.encode_name: info for info in msgspec.structs.fields(shape)}

    def read(self, raw: bytes) -> T:
        """Raises Refused 400 if `raw` is no JSON, Invalid if it is, and is wrong."""
        try:
            raw.decode()  # msgspec doesn't look at the UTF-8 inside a Raw
            fields = self._decoder.decode(raw)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            raise self._explain(raw) from None
        if faults := self._check(fields):
            raise Invalid(faults)
        return fields

    def _explain(self, raw: bytes) -> Invalid:
        values = split_object(raw)
        good: dict[str, Any] = {}
        faults: list[FieldError] = []
        for name, value in values.items():
            try:
                good[name] = self._decode_one(name, value)
            except ValueError as error:
                faults.append(FieldError(shorten(name), str(error)))
            if len(faults) >= MAX_REPORTED:
                return Invalid(faults)
        for name, info in self._infos.items():
            if info.required and name not in values:
                faults.append(FieldError(name, "is required"))
        return Invalid(faults + self._faults_of_good(good, faults))

    def _decode_one(self, name: str, value: msgspec.Raw) -> Any:
        if name not in self._infos:
            raise ValueError(f"is no field here{did_you_mean(name, self._infos)}")
        try:
            return msgspec.json.decode(value, type=self._infos[name].type)
        except (msgspec.DecodeError, RecursionError):
            raise ValueError(self._wants[name]) from None

    def _faults_of_good(self, good: dict[str, Any], bad: list[FieldError]) -> list[FieldError]:
        """What `check` says of the fields that could be decoded."""
        for name, info in self._infos.items():
            if info.required:
                good.setdefault(name, info.type())
        told = {fault.field for fault in bad}
        return [fault for fault in self._check(self._shape(**good)) if fault.field not in told]


def split_object(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of a JSON object as they came. Raises Refused 400, Invalid."""
    _check_text(raw)
    masked = mask_surrogates(raw)
    text = masked.text if masked else raw
    try:
        values = _objects.decode(text)
    except RecursionError:
        raise Invalid([FieldError("", "is nested too deeply")]) from None
    except msgspec.ValidationError:
        raise Invalid([FieldError("", "must be a JSON object")]) from None
    except msgspec.DecodeError as error:
        words = str(error).replace("Input data was truncated", "the JSON ends too early")
        raise Refused(malformed(words)) from None
    if masked:
        raise Invalid(_surrogate_faults(values, masked))
    return values


def _check_text(raw: bytes) -> None:
    if not raw.strip():
        raise Refused(malformed("the body is empty; send a JSON object"))
    if raw.startswith(_BOM):
        raise Refused(malformed("the body starts with a byte order mark; send plain UTF-8"))
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise Refused(malformed(f"the body is no UTF-8 at byte {error.start}")) from None


def _surrogate_faults(values: dict[str, msgspec.Raw], masked: Masked) -> list[FieldError]:
    escapes = ", ".join(sorted({escape.decode() for escape in masked.replaced})[:3])
    message = f"has half of a surrogate pair ({escapes}), which no text can hold"
    names = [name for name, value in values.items() if masked.mark in bytes(value)]
    faults = [FieldError(shorten(name), message) for name in names[:MAX_REPORTED]]
    return faults or [FieldError("", message)]


@dataclass(frozen=True, slots=True)
class Masked:
    """JSON in which each escape of a lone surrogate gave way to `mark`, of the same length; what
    was `replaced`, in order."""

    text: bytes
    mark: bytes
    replaced: list[bytes]


def mask_surrogates(raw: bytes) -> Masked | None:
    """None if there is nothing to mask. msgspec refuses lone surrogates with words that help
    nobody, and would refuse a whole batch for one of them."""
    if not _SURROGATE.search(raw):
        return None
    mark = next((mark for mark in _MARKS if mark not in raw), None)
    places = list(islice(_lone_surrogates(raw), MAX_MASKED))
    if mark is None or not places:
        return None
    masked = bytearray(raw)
    for place in places:
        masked[place : place + 6] = mark
    return Masked(bytes(masked), mark, [raw[place : place + 6] for place in places])


def _lone_surrogates(raw: bytes) -> Iterator[int]:
    """Where the escapes of surrogates without their other half begin."""
    for match in _ESCAPES.finditer(raw):
        if match[1] is not None:
            yield match.start()


def did_you_mean(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """`; did you mean X?` when a known name is near, else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1) if len(name) <= 64 else []
    return f"; did you mean `{near[0]}`?" if near else ""


def shorten(name: str) -> str:
    """A name from outside, fit to be put into an answer."""
    return name if len(name) <= 64 else f"{name[:64]}…"
