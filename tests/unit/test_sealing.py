"""Secrets in the database: encrypted, bound to their rows, readable after the deployment's secret was set."""

import pytest

from docmill.adapters.sql.sealing import Sealer, Unreadable

TEXT = '[{"text": "whsec_canary", "until_ms": null}]'


def sealer(*secrets: bytes) -> Sealer:
    return Sealer(lambda: secrets)


def test_what_is_sealed_says_nothing_and_can_be_read_again() -> None:
    one = sealer(b"secret")
    sealed = one.seal(TEXT, bound_to="wh_1")

    assert "canary" not in sealed
    assert sealed.startswith(one.mark)
    assert sealed != one.seal(TEXT, bound_to="wh_1")
    assert TEXT == sealer(b"secret").unseal(sealed, bound_to="wh_1")


def test_a_value_is_bound_to_its_row() -> None:
    one = sealer(b"secret")
    with pytest.raises(Unreadable):
        one.unseal(one.seal(TEXT, bound_to="wh_1"), bound_to="wh_2")


@pytest.mark.parametrize("change", [lambda v: v[:-4] + "AAAA", lambda v: v[:-8], lambda v: v + "%", lambda v: v[:16]])
def test_a_changed_value_is_unreadable(change) -> None:  # type: ignore[no-untyped-def]
    one = sealer(b"secret")
    with pytest.raises(Unreadable):
        one.unseal(change(one.seal(TEXT, bound_to="wh_1")), bound_to="wh_1")


def test_another_secret_reads_nothing_but_an_older_one_is_still_known() -> None:
    before = sealer(b"old").seal(TEXT, bound_to="wh_1")
    with pytest.raises(Unreadable):
        sealer(b"new").unseal(before, bound_to="wh_1")
    both = sealer(b"new", b"old")
    assert TEXT == both.unseal(before, bound_to="wh_1")
    assert not before.startswith(both.mark)


def test_plain_text_of_an_older_version_is_read() -> None:
    assert TEXT == sealer(b"secret").unseal(TEXT, bound_to="wh_1")
