"""A model's server as it comes: with and without structured output, busy, broken, slow, lying."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from docmill.adapters.captioners.openai import OpenAICaptioner
from docmill.adapters.providers.chat import Chat
from docmill.adapters.providers.client import Patience, ProviderClient
from docmill.core.captions import Caption
from docmill.core.errors import StageFailed
from docmill.ports import Picture
from support.model_peer import CHAT, MODEL, ModelPeer
from support.peers import Fault

QUICK = Patience(tries=2, first_pause_s=0.01, longest_pause_s=0.5, connect_s=10, silence_s=20, request_s=20)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]


@pytest.fixture
def peer() -> Iterator[ModelPeer]:
    with ModelPeer() as peer:
        peer.answers = [{"a": 1}]
        yield peer


@pytest.fixture
async def chat(peer: ModelPeer) -> AsyncIterator[Chat]:
    client = ProviderClient("llm", peer.base, {"Authorization": "Bearer sk-test-secret"}, patience=QUICK)
    yield Chat(client, MODEL)
    await client.close()


async def test_a_schema_goes_as_structured_output(peer: ModelPeer, chat: Chat) -> None:
    said = await chat.say(ASKED, schema=SCHEMA, max_tokens=7)

    [body] = peer.bodies()
    assert ('{"a": 1}', MODEL, 120, False) == (said.text, said.model, said.tokens, said.cut)
    assert SCHEMA == body["response_format"]["json_schema"]["schema"]
    assert (MODEL, 7, 0) == (body["model"], body["max_tokens"], body["temperature"])
    assert "properties" not in body["messages"][0]["content"]
    assert "Bearer sk-test-secret" == peer.asked("POST", CHAT)[0].headers["authorization"]


@pytest.mark.parametrize(
    ("refuses", "way"), [({"json_schema"}, "json_object"), ({"json_schema", "json_object"}, "words")]
)
async def test_what_a_server_can_is_found_out_once(peer: ModelPeer, chat: Chat, refuses: set[str], way: str) -> None:
    peer.refuses = refuses

    first = await chat.say(ASKED, schema=SCHEMA, max_tokens=7)
    tries = len(peer.bodies())
    await chat.say(ASKED, schema=SCHEMA, max_tokens=7)

    assert ('{"a": 1}', way) == (first.text, chat.way)
    assert (len(refuses) + 1, tries + 1) == (tries, len(peer.bodies()))
    assert '"properties"' in peer.bodies()[-1]["messages"][0]["content"]
    assert "response_format" not in peer.bodies()[-1] or way == "json_object"


async def test_another_refusal_is_not_taken_for_that(peer: ModelPeer, chat: Chat) -> None:
    told = (
        b'{"error": {"message": "maximum context length of gpt-4.1 is 10 tokens at http://10.0.0.1:1/x with sk-abc, '
        b'says vllm-3.ml.internal, gpu7:8000, localhost:9, [fe80::1]:80; see messages.0.content"}}'
    )
    peer.faults.append(Fault("POST", CHAT, status=400, body=told, times=3))

    with pytest.raises(StageFailed, match="maximum context length") as failed:
        await chat.say(ASKED, schema=SCHEMA, max_tokens=7)

    assert ("llm_refused", False, "") == (failed.value.code, failed.value.retryable, chat.way)
    for secret in ("10.0.0.1", "sk-abc", "vllm", "internal", "gpu7", "localhost", "fe80"):
        assert secret not in failed.value.message
    for word in ("of gpt-4.1 is 10 tokens", "messages.0.content"):
        assert word in failed.value.message


@pytest.mark.parametrize(
    ("fault", "code", "calls"),
    [
        (
            Fault("POST", CHAT, status=401, body=b'{"error": {"message": "bad key sk-te..."}}', times=9),
            "llm_refused",
            1,
        ),
        (Fault("POST", CHAT, status=429, times=9), "llm_rate_limit", 2),
        (Fault("POST", CHAT, status=429, headers={"Retry-After": "60"}, times=9), "llm_rate_limit", 1),
        (Fault("POST", CHAT, status=503, times=9), "llm_unreachable", 2),
        (Fault("POST", CHAT, hang_up=True, times=9), "llm_unreachable", 2),
        (Fault("POST", CHAT, cut=True, times=9), "llm_unreachable", 2),
        (Fault("POST", CHAT, body=b"<html>"), "llm_unreachable", 1),
        (Fault("POST", CHAT, body=b'{"choices": []}'), "llm_unreachable", 1),
        (Fault("POST", CHAT, body=b'{"choices": [{"message": 3}]}'), "llm_unreachable", 1),
    ],
    ids=["key", "429", "long 429", "503", "no answer", "cut", "html", "no choice", "no message"],
)
async def test_every_fault_has_a_code(peer: ModelPeer, chat: Chat, fault: Fault, code: str, calls: int) -> None:
    peer.faults.append(fault)

    with pytest.raises(StageFailed) as failed:
        await chat.say(ASKED, schema=SCHEMA, max_tokens=7)

    assert code == failed.value.code
    assert calls == len(peer.asked("POST", CHAT))
    assert "127.0.0.1" not in failed.value.message
    assert "sk-te" not in failed.value.message


async def test_a_slow_one_is_given_up(peer: ModelPeer) -> None:
    peer.faults.append(Fault("POST", CHAT, slow_s=2, times=9))
    client = ProviderClient("llm", peer.base, patience=replace(QUICK, request_s=0.3))
    with pytest.raises(StageFailed, match="it took longer than") as failed:
        await Chat(client, MODEL).say(ASKED, schema=SCHEMA, max_tokens=7)
    await client.close()
    assert ("llm_unreachable", True) == (failed.value.code, failed.value.retryable)


async def test_a_passing_429_is_waited_out(peer: ModelPeer, chat: Chat) -> None:
    peer.faults.append(Fault("POST", CHAT, status=429, headers={"Retry-After": "0"}))

    assert '{"a": 1}' == (await chat.say(ASKED, schema=SCHEMA, max_tokens=7)).text


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{"message": {"content": null, "refusal": "no"}}], "usage": {"total_tokens": "many"}}',
        b'{"choices": [{"message": {"content": 7}}], "usage": 3}',
        b'{"choices": [{"message": {}}], "usage": {"total_tokens": -1}}',
    ],
)
async def test_a_message_without_text_is_empty(peer: ModelPeer, chat: Chat, body: bytes) -> None:
    peer.faults.append(Fault("POST", CHAT, body=body))

    said = await chat.say(ASKED, schema=None, max_tokens=7)

    assert ("", None) == (said.text, said.tokens)


async def test_options_win_and_null_takes_a_field_away(peer: ModelPeer, chat: Chat) -> None:
    chat.options = {"temperature": None, "max_tokens": None, "max_completion_tokens": 9}

    await chat.say(ASKED, schema=None, max_tokens=7)

    assert {"model", "messages", "max_completion_tokens"} == set(peer.bodies()[0])


async def test_what_the_server_offers(chat: Chat) -> None:
    assert [MODEL] == await chat.models()


async def test_a_caption_is_asked_with_the_image_and_its_surroundings(peer: ModelPeer, chat: Chat) -> None:
    peer.answers = [{"caption": "A bar chart.", "confidence": 0.9}]

    caption = await OpenAICaptioner(chat).caption(Picture(b"\x89PNG", "image/png", "before", "after", "42"))

    words, image = peer.bodies()[0]["messages"][1]["content"]
    assert Caption("A bar chart.", MODEL, 0.9) == caption
    assert "data:image/png;base64,iVBORw==" == image["image_url"]["url"]
    assert all(word in words["text"] for word in ("before", "after", "42"))


@pytest.mark.parametrize(
    "answer",
    ["no", "[]", '{"caption": "x"}', '{"caption": 1, "confidence": 1}', '{"caption": "x", "confidence": true}'],
)
async def test_what_is_no_caption_is_none(peer: ModelPeer, chat: Chat, answer: str) -> None:
    peer.answers = [answer]

    with pytest.raises(StageFailed) as failed:
        await OpenAICaptioner(chat).caption(Picture(b"x", "image/png"))
    assert "llm_answer_invalid" == failed.value.code
