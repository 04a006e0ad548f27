"""Signatures that a Standard Webhooks receiver accepts."""

from __future__ import annotations

import base64

import pytest

from dq.core.signing import parse_secrets, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()


def test_the_specs_example_is_signed_as_it_says() -> None:
    body = b'{"test": 2432232314}'
    signature = sign(parse_secrets(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_several_secrets_sign_side_by_side() -> None:
    both = sign(parse_secrets(f" {SECRET}  {OTHER}"), "id", 1, b"x").split(" ")
    alone = [sign(parse_secrets(each), "id", 1, b"x") for each in (SECRET, OTHER)]
    assert both == alone and both[0] != both[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "1 to 8"),
        (" ", "1 to 8"),
        (" ".join([OTHER] * 9), "1 to 8"),
        ("hunter2", "whsec_"),
        ("whsec_", "16 to 128 bytes"),
        ("whsec_####", "base64"),
        ("whsec_é", "base64"),
        (SECRET + "x", "base64"),
        ("whsec_" + base64.b64encode(bytes(15)).decode(), "16 to 128 bytes"),
        ("whsec_" + base64.b64encode(bytes(129)).decode(), "16 to 128 bytes"),
        (f"{SECRET} hunter2", "whsec_"),
    ],
)
def test_a_bad_secret_is_refused_and_not_repeated(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_secrets(text)
    assert "hunter2" not in str(caught.value)
