"""Which addresses a callback never connects to, in every spelling."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.networks import DEFAULT_DENY, DenyList

DEFAULT = DenyList(DEFAULT_DENY)


@pytest.mark.parametrize(
    "ip",
    [
        "169.254.169.254",
        "169.254.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "239.255.255.255",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fe80::1%1",
        "ff02::1",
        "fd00:ec2::254",
        "fd00:c1::a9fe:a9fe",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "::ffff:100.100.100.200",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:a9:fe:a9fe::",
        "64:ff9b:1:0:a9:fea9:fe00:0",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::",
        "2001:0:1:2:3:4:5601:5601",
        "not an address",
        "",
        "127.1",
    ],
)
def test_denied_by_default(ip: str) -> None:
    assert DEFAULT.denies(ip)


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "192.0.0.1",
        "8.8.8.8",
        "fd00::1",
        "2606:4700::1111",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::808:808",
        "64:ff9b:1::a00:5",
        "2002:a00:1::1",
    ],
)
def test_allowed_by_default(ip: str) -> None:
    assert not DEFAULT.denies(ip)


def test_an_empty_list_denies_only_what_is_no_address() -> None:
    nothing = DenyList(())
    assert not nothing.denies("169.254.169.254")
    assert nothing.denies("somewhere")


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/33"):
        DenyList(["10.0.0.0/33"])


def test_a_network_may_be_one_address_or_have_host_bits() -> None:
    deny = DenyList(["10.1.2.3", "192.168.7.7/24", "fd00::1"])
    assert deny.denies("10.1.2.3")
    assert deny.denies("192.168.7.1")
    assert deny.denies("fd00::1")
    assert not deny.denies("10.1.2.4")


@given(st.ip_addresses(v=4))
def test_every_spelling_of_a_denied_address_is_denied(ip: IPv4Address) -> None:
    deny = DenyList([f"{ip}/32"])
    high, low = int(ip) >> 16, int(ip) & 0xFFFF
    spellings = [
        f"{ip}",
        f"::ffff:{ip}",
        f"::ffff:{high:x}:{low:x}",
        f"64:ff9b::{high:x}:{low:x}",
        f"64:ff9b:1:2:3:4:{high:x}:{low:x}",
        f"2002:{high:x}:{low:x}::",
        f"2002:{high:x}:{low:x}:1:2:3:4:5",
        f"2001::1:2:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",
    ]
    assert [deny.denies(spelling) for spelling in spellings] == [True] * len(spellings)


@given(st.ip_addresses())
def test_any_address_can_be_asked_about(ip: object) -> None:
    assert DEFAULT.denies(str(ip)) in (True, False)
