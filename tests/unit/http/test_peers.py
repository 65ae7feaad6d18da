"""The client's address is what we saw, not what the client says."""

import pytest

from docmill.http.peers import bucket_of, networks, peer_of


def seen(peer: str, *forwarded: str, trusted: tuple[str, ...] = ()) -> str:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return peer_of({"type": "http", "client": (peer, 1), "headers": headers}, networks(trusted))


PROXY = ("10.0.0.0/8", "::1")


@pytest.mark.parametrize(
    ("expected", "peer", "forwarded", "trusted"),
    [
        ("203.0.113.9", "203.0.113.9", ["1.2.3.4"], PROXY),
        ("10.0.0.1", "10.0.0.1", ["1.2.3.4"], ()),
        ("1.2.3.4", "10.0.0.1", ["1.2.3.4"], PROXY),
        ("1.2.3.4", "10.0.0.1", ["6.6.6.6, 1.2.3.4"], PROXY),
        ("1.2.3.4", "10.0.0.1", ["6.6.6.6, 1.2.3.4, 10.0.0.7"], PROXY),
        ("1.2.3.4", "10.0.0.1", ["6.6.6.6", "1.2.3.4"], PROXY),
        ("10.0.0.1", "10.0.0.1", ["garbage"], PROXY),
        ("10.0.0.1", "10.0.0.1", [], PROXY),
        ("2001:db8::1", "::1", ["[2001:db8::1]"], PROXY),
        ("9.9.9.9", "10.0.0.1", [", ".join(["8.8.8.8"] * 1000 + ["9.9.9.9"])], PROXY),
    ],
)
def test_a_header_counts_only_behind_a_trusted_proxy(
    expected: str, peer: str, forwarded: list[str], trusted: tuple[str, ...]
) -> None:
    assert expected == seen(peer, *forwarded, trusted=trusted)


def test_a_proxy_is_known_also_on_a_socket_for_both_families() -> None:
    """Such a socket names IPv4 peers as ::ffff:a.b.c.d."""
    assert "198.51.100.7" == seen("::ffff:10.0.0.1", "198.51.100.7", trusted=("10.0.0.0/8",))
    assert "::ffff:10.9.0.1" == seen("::ffff:10.9.0.1", "198.51.100.7", trusted=("10.0.0.0/16",))


def test_an_ipv6_subscriber_is_one_bucket() -> None:
    assert bucket_of("2001:db8:1:2::1") == bucket_of("2001:db8:1:2:ffff::9")
    assert bucket_of("2001:db8:1:2::1") != bucket_of("2001:db8:1:3::1")
    assert "192.0.2.1" == bucket_of("::ffff:192.0.2.1")
    assert "unknown" == bucket_of("unknown")
