"""Which addresses may be called: a long table, because every line of it was somebody's hole."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.addresses import TrustedOrigin, check_url, is_public, may_call
from docmill.core.errors import Invalid

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "192.0.1.1", "100.128.0.1", "223.255.255.255"]
PUBLIC += ["2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "2001:200::1"]
PUBLIC += ["64:ff9b::808:808", "2002:808:808::1", "::ffff:8.8.8.8"]

PRIVATE = ["0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254"]
PRIVATE += ["169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.170", "192.0.2.1", "192.88.99.1"]
PRIVATE += [
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
]
PRIVATE += ["240.0.0.1", "255.255.255.255"]
PRIVATE += ["::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1"]
PRIVATE += ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1"]
PRIVATE += ["2001::1", "2001:0:53aa:64c::1", "2001:10::1", "2001:20::1", "2001:2::1", "2001:db8::1", "3fff::1"]
PRIVATE += ["fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1%1", "fec0::1", "ff02::1", "ff0e::1"]
PRIVATE += ["100::1", "5f00::1", "4000::1", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a00:1"]


@pytest.mark.parametrize("ip", PUBLIC)
def test_public(ip: str) -> None:
    assert is_public(ip)


@pytest.mark.parametrize("ip", PRIVATE)
def test_not_public(ip: str) -> None:
    assert not is_public(ip)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_same_in_every_disguise(ip: IPv4Address) -> None:
    number = int(ip)
    disguises = [0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80]

    assert [is_public(ip)] * 3 == [is_public(IPv6Address(disguise)) for disguise in disguises]


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_public(ip: IPv4Address | IPv6Address) -> None:
    inner = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None)
    assert not (is_public(ip) and (ip.is_private or ip.is_multicast) and inner is None)


def test_an_operator_may_allow_networks() -> None:
    networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))

    assert [True, True, True, False] == [
        may_call(ip, networks) for ip in ("10.1.1.1", "fd00::1", "1.1.1.1", "127.0.0.1")
    ]


REFUSED = [
    "",
    "example.com",
    "//example.com/",
    "http:/example.com",
    "http:example.com",
    "http://",
    "http:///path",
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "data:text/plain,hello",
    "javascript:alert(1)",
    "s3://bucket/key",
    "http://user@example.com/",
    "http://user:secret@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1:80@example.com/",
    "http://example.com:22/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:99999999/",
    "http://example.com:80:80/",
    "http://example.com:８0/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://x.localhost/",
    "http://127.0.0.1/",
    "http://127.0.0.1./",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.0x1/",
    "http://127.0.0.01/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    "http://example.0x/",
    "http://example.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1]/",
    "http://[::1",
    "http://::1/",
    "http://[::1]x/",
    "http://[v1.x]/",
    "http://①②⑦.0.0.1/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://ｌocalhost/",
    "http://exa\u00admple.com/",
    "http://faß.de/",
    "http://a\u200db.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com\\.evil/",
    "http://exam ple.com/",
    "http://example.com/a b",
    "http://example.com/\r\nHost: evil",
    "http://example.com\t/",
    "http://example.com\0/",
    "http://example%2ecom/",
    "http://exam%00ple.com/",
    "http://-example.com/",
    "http://example-.com/",
    "http://.example.com/",
    "http://example..com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 130 + "com/",
    "http://example.com/" + "x" * 3000,
]


@pytest.mark.parametrize("url", REFUSED)
def test_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_url(url)

    assert "address_refused" == caught.value.code


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTPS://Example.COM:443/A?b=c#d", "https://example.com/A?b=c"),
        ("http://example.com./x", "http://example.com/x"),
        ("http://example.com:/x", "http://example.com/x"),
        ("http://example.com:443/x", "http://example.com:443/x"),
        ("http://example.com?q", "http://example.com/?q"),
        ("http://example.com/a@b:c", "http://example.com/a@b:c"),
        ("http://münchen.de/ü", "http://xn--mnchen-3ya.de/%C3%BC"),
        ("http://例子.测试/", "http://xn--fsqu00a.xn--0zwm56d/"),
        ("http://a_b.example.com/", "http://a_b.example.com/"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2606:4700:0::1111]/", "http://[2606:4700::1111]/"),
        ("http://1.example.com/", "http://1.example.com/"),
        ("http://metadata/", "http://metadata/"),  # what it resolves to decides
    ],
)
def test_read(url: str, read: str) -> None:
    assert read == check_url(url).url


def test_hosts_ports_and_networks_may_be_chosen() -> None:
    networks = (ip_network("127.0.0.0/8"),)
    assert 8080 == check_url("http://example.com:8080/", ports=None).port
    assert "127.0.0.1" == check_url("http://127.0.0.1/", allow_networks=networks).host
    assert "localhost" == check_url("http://localhost/", allow_networks=networks).host
    hosts = ("example.com", "*.example.org")
    assert "a.example.org" == check_url("http://a.example.org/", allow_hosts=hosts).host
    for url in ("http://example.org/", "http://evil-example.com/", "http://example.com.evil/", "http://aexample.org/"):
        with pytest.raises(Invalid):
            check_url(url, allow_hosts=hosts)


WORKER = TrustedOrigin("https://Worker.Example:8443", {"Authorization": "Bearer secret"})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/api/jobs/1/zip?a=b", "https://worker.example:8443/api/jobs/1/zip?a=b"),
        ("api/x.zip", "https://worker.example:8443/api/x.zip"),
        ("../../x.zip", "https://worker.example:8443/x.zip"),
        ("https://worker.example:8443/y", "https://worker.example:8443/y"),
        ("HTTPS://WORKER.example.:8443", "https://worker.example:8443/"),
        ("http://worker.example:8443/y", None),
        ("https://worker.example/y", None),
        ("https://worker.example:443/y", None),
        ("https://worker.example:8443.evil.example/", None),
        ("https://worker.example:8443@evil.example/", None),
        ("https://user@worker.example:8443/", None),
        ("//evil.example/x", None),
        ("/\\evil.example/x", None),
        ("javascript:alert(1)", None),
        ("http://[::1", None),
    ],
)
def test_relative_addresses_lead_to_the_worker_and_others_are_not_its_origin(
    address: str, expected: str | None
) -> None:
    try:
        target = WORKER.match(WORKER.resolve(address))
    except Invalid:
        target = None

    assert expected == (target.url if target else None)
    assert "secret" not in repr(WORKER)


def test_a_default_port_may_be_left_out() -> None:
    assert TrustedOrigin("http://worker").match("http://worker:80/a")
    assert TrustedOrigin("https://10.0.0.1:443").match("https://10.0.0.1/a")
    assert None is TrustedOrigin("http://worker").match("https://worker:80/a")
