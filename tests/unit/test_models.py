"""Models at work: which captions are taken, and what is kept of what was said, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from docmill import compose
from docmill.contracts import Asset
from docmill.core.access import LOCAL
from docmill.core.captions import CONTEXT_BYTES, Caption, describe, nearest, wanted
from docmill.core.errors import StageFailed
from docmill.core.machine import StageResult
from docmill.core.parsed import Figure, Page, Parsed
from docmill.core.reports import Succeeded
from docmill.core.rules import Draft
from docmill.core.task import Artifacts, Task
from docmill.core.turns import Lane
from docmill.ports import Ports
from docmill.settings import CaptionSettings, LlmSettings, Settings
from docmill.work import intake, query, sweep
from docmill.work.extracting import NotExtracted, extract
from docmill.work.places import Places
from docmill.work.receive import receive
from docmill.work.run import run_attempt
from docmill.work.stages import parse, publish
from docmill.work.stages.step import Step
from support.model_peer import CHAT, INVOICE_SCHEMA, MODEL, ModelPeer
from support.peers import Fault

PNG = b"\x89PNG\r\n\x1a\n some pixels"
FIGURE = Figure("a.png", "image", "image/png", "", len(PNG), 0, context_before="é" * 600, ocr_text="SALE")


@pytest.mark.parametrize(
    ("caption", "method"),
    [
        (None, "ocr_only"),
        (Caption("A sign.", "m", 0.5), "vlm_caption"),
        (Caption("A sign.", "m", 0.49), "ocr_only"),
        (Caption("  ", "m", 1.0), "ocr_only"),
        (Caption("A sign.", "m", float("nan")), "ocr_only"),
        (Caption("A sign.", "m", 1.1), "ocr_only"),
    ],
)
def test_only_a_caption_of_which_the_model_is_sure_counts(caption: Caption | None, method: str) -> None:
    assert method == describe(FIGURE, caption, least=0.5).method
    assert ("vlm_caption" if method == "vlm_caption" else "none") == describe(
        replace(FIGURE, ocr_text=""), caption, least=0.5
    ).method


def test_without_a_caption_the_text_in_the_image_describes_it() -> None:
    long = replace(FIGURE, ocr_text="é" * 3_000)

    assert "SALE" == describe(FIGURE, None, least=0.5).text
    assert None is describe(replace(FIGURE, ocr_text=" "), None, least=0.5).text
    assert "é" * 1_024 == Asset.model_validate(an_asset(describe(long, None, least=0.5).text)).text_description


def an_asset(description: str | None) -> dict[str, object]:
    ref = {"tenant_id": "t", "workflow_id": "w", "asset_id": str(uuid4()), "document_id": str(uuid4())}
    blob = {"type": "file", "uri": "docmill://b/k", "sha256": "0" * 64, "size": 1}
    return {
        "ref": ref,
        "media_type": "image/png",
        "blob": blob,
        "caption_method": "ocr_only",
        "text_description": description,
        "created_at": "2026-01-01T00:00:00Z",
        "checksum": "0" * 64,
    }


def test_the_surroundings_are_cut_to_whole_characters_nearest_to_the_image() -> None:
    before, after = nearest("a" + "é" * 600 + "END", end=True), nearest("START" + "é" * 600, end=False)

    assert before.endswith("END")
    assert after.startswith("START")
    assert all(CONTEXT_BYTES - 1 <= len(text.encode()) <= CONTEXT_BYTES for text in (before, after))


def test_only_images_that_a_model_can_see_are_shown_to_it() -> None:
    assert wanted(FIGURE)
    assert not wanted(replace(FIGURE, kind="table"))
    assert not wanted(replace(FIGURE, media_type="image/tiff"))
    assert not wanted(replace(FIGURE, size=9 * 1024**2))


@pytest.fixture
def peer() -> Iterator[ModelPeer]:
    with ModelPeer() as peer:
        yield peer


@pytest.fixture
async def ports(peer: ModelPeer, tmp_path: Path) -> AsyncIterator[Ports]:
    settings = Settings(
        data=tmp_path,
        llm=LlmSettings(url=peer.base, model=MODEL, tries=1),
        captions=CaptionSettings(url=peer.base, model=MODEL, tries=1),
    )
    async with compose.opened(settings) as ports:
        yield ports


async def a_step(ports: Ports, folder: Path, rule_id: int | None = None) -> Step:
    """A task whose document with one image is parsed, and waits to be published."""

    async def source() -> AsyncIterator[bytes]:
        yield b"source"

    stored = await intake.upload(ports, LOCAL, 1, "a.txt", source())
    task, _ = await intake.submit(ports, LOCAL, intake.Submission(stored.key, 1, "a.txt", rule_id))
    assert task.attempt_id
    claimed = await ports.ledger.claim(task.attempt_id, worker="test", lease_ms=60_000)
    assert claimed
    step = Step(*claimed, report=lambda _done, _total: None)
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "a.png").write_bytes(PNG)
    figure = replace(FIGURE, sha256=sha256(PNG).hexdigest())
    artifacts = await parse.keep(ports, step, Parsed("local", "text/plain", (Page(0, "Text"),), (figure,)), folder)
    return replace(step, task=replace(step.task, artifacts=artifacts, source_sha256=stored.sha256))


async def test_what_the_model_said_last_outlives_the_attempt(ports: Ports, peer: ModelPeer, tmp_path: Path) -> None:
    rule = await ports.rules.add(Draft("x", json_schema=INVOICE_SCHEMA), LOCAL.owner)
    step = await a_step(ports, tmp_path / "work", rule_id=rule.id)
    peer.answers = ["last words"]
    parsed = Succeeded(StageResult(artifacts=step.task.artifacts))
    change = await receive(ports, step.task.id, step.attempt.id, parsed, keep_for="test")
    assert change.opens
    found = await ports.ledger.find(change.opens.id)
    assert found

    await run_attempt(ports, *found, await Places(jobs=1, stage_jobs=1).at(Lane.LATER), worker="test")
    await sweep.collect(replace(ports, limits=replace(ports.limits, leavings_ms=0)))

    task = await query.task(ports, LOCAL, step.task.id)
    assert task.fault
    assert "llm_answer_invalid" == task.fault.code
    assert "last words" == (await query.extraction(ports, LOCAL, task.id))["answer"]


async def captions(ports: Ports, task: Task, version: str = "1") -> list[tuple[str, str | None]]:
    document_id = publish.document_id_of(task.tenant, task.id)
    document = await ports.documents.get(task.tenant, document_id, version)
    assert document
    return [(asset.caption_method, asset.text_description) for asset in document.assets[1:]]


async def test_an_attempt_after_a_crash_takes_over_what_was_said_before_it(
    ports: Ports, peer: ModelPeer, tmp_path: Path
) -> None:
    step = await a_step(ports, tmp_path / "work")
    peer.answers = [{"caption": "First.", "confidence": 0.9}, {"caption": "Second.", "confidence": 0.9}]

    first, second = await asyncio.gather(publish.run(ports, step), publish.run(ports, step))
    third = await publish.run(ports, step)

    assert first == second == third
    [(method, text)] = await captions(ports, step.task)
    assert "vlm_caption" == method
    assert text in ("First.", "Second.")
    words = peer.bodies()[0]["messages"][1]["content"][0]["text"]
    assert f"Before the image:\n{'é' * 256}\n" in words


async def test_a_first_attempt_without_captions_stays_without(ports: Ports, peer: ModelPeer, tmp_path: Path) -> None:
    step = await a_step(ports, tmp_path / "work")
    peer.answers = [{"caption": "Late.", "confidence": 0.9}]
    peer.faults.append(Fault("POST", CHAT, status=500))

    await publish.run(ports, step)
    await publish.run(ports, step)

    assert [("ocr_only", "SALE")] == await captions(ports, step.task)


async def test_the_next_version_does_not_ask_again(ports: Ports, peer: ModelPeer, tmp_path: Path) -> None:
    step = await a_step(ports, tmp_path / "work")
    peer.answers = [{"caption": "Once.", "confidence": 0.9}]

    await publish.run(ports, step)
    await publish.run(ports, replace(step, task=replace(step.task, run=2)))

    assert [("vlm_caption", "Once.")] == await captions(ports, step.task, "2")
    assert 1 == len(peer.bodies())


async def test_a_slow_model_holds_nobody_up(ports: Ports, peer: ModelPeer, tmp_path: Path) -> None:
    step = await a_step(ports, tmp_path / "work")
    hurried = replace(ports, limits=replace(ports.limits, caption_seconds=0.3, llm_seconds=0.3))
    peer.faults.append(Fault("POST", CHAT, slow_s=5, times=2))

    await publish.run(hurried, step)
    with pytest.raises(NotExtracted) as failed:
        await extract(
            hurried,
            Draft("x", json_schema=INVOICE_SCHEMA),
            replace(step.task, artifacts=Artifacts()),
            Parsed("local", "text/plain", (Page(0, "Text"),)),
        )

    assert [("ocr_only", "SALE")] == await captions(ports, step.task)
    assert isinstance(failed.value.error, StageFailed)
    assert ("llm_budget", False) == (failed.value.error.code, failed.value.error.retryable)
