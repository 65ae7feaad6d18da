"""Publish: the canonical document, and what was asked for beside it: the twin, the mount."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from docmill.contracts import FileBlob, NormalizedDocument
from docmill.core import machine
from docmill.core.access import LOCAL, Principal
from docmill.core.assemble import build_document, document_id_of
from docmill.core.errors import Conflict, DocmillError, StageFailed
from docmill.core.machine import Change, StageResult
from docmill.core.output import stem_of
from docmill.core.parsed import Parsed
from docmill.core.task import Attempt, Event, Task
from docmill.core.twin import plan_twin
from docmill.ports import Ports
from docmill.work import query, tables
from docmill.work.captioning import captions_of, known_captions
from docmill.work.objects import TenantStore, objects
from docmill.work.receive import ring
from docmill.work.stages.parse import beside, load, scratch
from docmill.work.stages.step import AtStage, Step

GENERATED_BY = "docmill"


async def run(ports: Ports, step: Step) -> StageResult:
    parsed = await load(ports, step.task.tenant, step.task.artifacts.parsed_key or "")
    document_id = await _store_document(ports, step, parsed)
    twin_path = await _write_twin(ports, step, parsed) if step.task.wishes.twin else None
    mount = step.task.wishes.mount
    mounted_path = await _mount(ports, step) if mount else None
    return StageResult(
        document_id=document_id,
        twin_path=twin_path,
        mounted_path=mounted_path,
        mount_table_id=mount.table_id if mount else None,
    )


async def _store_document(ports: Ports, step: Step, parsed: Parsed) -> UUID:
    task, store = step.task, objects(ports, step.task.tenant)
    markdown_key = task.artifacts.markdown_key or ""
    source = await store.stat(task.source_key)
    if source is None:
        raise StageFailed("storage_failed", why="the source is no longer in the store")
    markdown = parsed.markdown.encode()
    build = partial(
        build_document,
        task,
        parsed,
        source=FileBlob(
            type="file", uri=store.uri(task.source_key), sha256=task.source_sha256 or source.sha256, size=source.size
        ),
        markdown=FileBlob(
            type="file", uri=store.uri(markdown_key), sha256=sha256(markdown).hexdigest(), size=len(markdown)
        ),
        figure_uri=lambda name: store.uri(asset_key(task, name)),
        least_confidence=ports.limits.caption_confidence,
    )
    if ports.captioner is None:
        document = build()
        await ports.documents.put(document)
    else:
        document = await _put_captioned(ports, step, parsed, ports.captioner.model, build)
    return document.ref.document_id


async def _put_captioned(
    ports: Ports, step: Step, parsed: Parsed, model: str, build: Callable[..., NormalizedDocument]
) -> NormalizedDocument:
    """A model says it differently each time; the attempt that stored the document first has said it."""
    task = step.task
    before = await ports.documents.get(task.tenant, document_id_of(task.tenant, task.id))
    keys = {figure.name: asset_key(task, figure.name) for figure in parsed.figures}
    captions = await captions_of(ports, task, parsed, keys, known_captions(before, model))
    document = build(captions=captions.found)
    try:
        await ports.documents.put(document)
    except Conflict as conflict:
        there = await ports.documents.get(task.tenant, document.ref.document_id, document.ref.version)
        if conflict.code != "document_exists" or there is None:
            raise
        said = known_captions(there)
        by_name = {figure.name: said[figure.sha256] for figure in parsed.figures if figure.sha256 in said}
        document = build(captions=by_name, least_confidence=0.0)
        await ports.documents.put(document)
        return document
    if captions.missing:
        await _note(ports, step, Event("captions_missing", dict(captions.missing)))
    return document


def asset_key(task: Task, name: str) -> str:
    return beside(task.artifacts.parsed_key or "", name)


async def _write_twin(ports: Ports, step: Step, parsed: Parsed) -> str:
    task, wish = step.task, step.task.wishes.twin
    assert wish is not None  # noqa: S101 - the caller looked
    try:
        is_single_user = step.owner == LOCAL.owner and not await ports.keys.is_required()
        folder = ports.library.folder(step.owner, task.project_id, task.id, wish.folder, is_single_user=is_single_user)
        twin = plan_twin(
            task.filename,
            parsed,
            layout=wish.layout,
            source_sha256=task.source_sha256 or "",
            generated_by=GENERATED_BY,
            generated_at=datetime.fromtimestamp(task.created_ms / 1000, UTC),
        )
        names = [file.asset for file in twin.files if file.asset]
        async with scratch(ports.scratch / f"{step.attempt.id}-twin") as there:
            assets = await fetched(objects(ports, task.tenant), {name: asset_key(task, name) for name in names}, there)
            original = there / "original"
            await objects(ports, task.tenant).fetch(task.source_key, original)
            await ports.library.keep_original(folder, twin.source_name, original)
            written = await ports.library.write(folder, twin, assets, force=wish.force)
    except Conflict as drift:
        # Somebody's edit is worth more than our run: it is kept and said, and the task still completes.
        await _note(ports, step, Event("twin_drift", {"code": drift.code, "message": drift.message}))
        return str(drift.facts.get("path", ""))
    except DocmillError as error:
        raise AtStage(error, "twin") from error
    return written.path


async def fetched(store: TenantStore, keys: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Objects as files, by the names that they are asked for."""
    found = {}
    for number, (name, key) in enumerate(keys.items()):
        path = folder / "assets" / str(number)
        await store.fetch(key, path)
        found[name] = path
    return found


async def _mount(ports: Ports, step: Step) -> str:
    task, wish = step.task, step.task.wishes.mount
    assert wish is not None  # noqa: S101 - the caller looked
    who = Principal(task.owner, task.tenant)
    try:
        output = await query.output(ports, task)
        return await tables.mount(
            ports, who, task.id, wish.table_id, wish.json_path, stem_of(task.filename), output, once=True
        )
    except DocmillError as error:
        raise AtStage(error, "mount") from error


async def _note(ports: Ports, step: Step, event: Event) -> None:
    def rule(task: Task, _: Attempt | None) -> Change:
        return machine.note(task, event)

    await ring(ports, await ports.ledger.decide(step.task.id, rule))
