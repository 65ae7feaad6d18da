import os
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import timedelta

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

from support.servers import S3Address

MEBIBYTE = 1024 * 1024


def test_what_was_put_can_be_got(s3: S3Address, s3_prefix: str) -> None:
    store = s3.store(s3_prefix)

    obstore.put(store, "folder/文件.txt", b"hello")

    assert b"hello" == obstore.get(store, "folder/文件.txt").bytes().to_bytes()
    assert b"ell" == obstore.get_range(store, "folder/文件.txt", start=1, end=4).to_bytes()
    with pytest.raises((NotFoundError, FileNotFoundError)):
        obstore.get(store, "missing")


def test_conditions_are_kept(s3: S3Address, s3_prefix: str) -> None:
    store = s3.store(s3_prefix)
    first = obstore.put(store, "once", b"first", mode="create")

    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "once", b"second", mode="create")
    second = obstore.put(store, "once", b"second", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        obstore.put(store, "once", b"third", mode={"e_tag": first["e_tag"]})

    assert first["e_tag"] != second["e_tag"]
    assert b"second" == obstore.get(store, "once").bytes().to_bytes()


def test_a_presigned_url_opens_one_object_and_no_other(s3: S3Address, s3_prefix: str) -> None:
    store = s3.store(s3_prefix)
    obstore.put(store, "shown", b"for you")
    obstore.put(store, "hidden", b"not for you")
    url = obstore.sign(store, "GET", "shown", timedelta(minutes=5))

    with urllib.request.urlopen(url, timeout=10) as answer:
        assert b"for you" == answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url.replace("/shown?", "/hidden?"), timeout=10)
    with refused.value as answer:
        assert 403 == answer.code


def test_a_large_object_goes_up_in_parts(s3: S3Address, s3_prefix: str) -> None:
    store = s3.store(s3_prefix)
    content = os.urandom(12 * MEBIBYTE)

    done = obstore.put(store, "large", content, use_multipart=True, chunk_size=5 * MEBIBYTE)

    assert "-3" in (done["e_tag"] or "")
    assert content == obstore.get(store, "large").bytes().to_bytes()


@pytest.mark.parametrize("wrong", [{"secret_key": "wrong"}, {"access_key": "stranger"}])
def test_wrong_credentials_are_refused(s3: S3Address, s3_prefix: str, wrong: dict[str, str]) -> None:
    store = replace(s3, **wrong).store(s3_prefix, patient=False)

    with pytest.raises(BaseError, match=r"403|Forbidden|not match|denied"):
        obstore.put(store, "intruder", b"")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{s3.endpoint}/{s3.bucket}/{s3_prefix}/intruder", timeout=10)
    with refused.value as answer:
        assert 403 == answer.code


def test_a_prefix_is_emptied_afterwards(s3: S3Address) -> None:
    with s3.prefix() as prefix:
        obstore.put(s3.store(prefix), "a", b"")
        obstore.put(s3.store(prefix), "b/c", b"")

    assert [] == obstore.list(s3.store(), prefix).collect()
