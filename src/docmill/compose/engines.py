"""Who reads documents, and which models are asked: as the settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docmill.adapters.engines.local import Limits as ParseLimits
from docmill.adapters.engines.local import LocalEngine
from docmill.adapters.engines.sandbox.kernel import hide_memory
from docmill.adapters.workers.dispatcher import DispatcherWorker
from docmill.adapters.workers.secretary import SecretaryWorker
from docmill.core import routing
from docmill.core.errors import DocumentError, Invalid, TooLarge
from docmill.core.routing import Foresight, Policy, Reach, stricter
from docmill.ports import Captioner, Engine, ExternalWorker, Extractor
from docmill.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from docmill.adapters.engines.slicing.auto import AutoEngine
    from docmill.adapters.engines.slicing.cutting import Cutter
    from docmill.adapters.engines.slicing.sliced import SlicedEngine
    from docmill.adapters.providers.chat import Chat
    from docmill.adapters.providers.client import ProviderClient


ASSUMED_PAGES = 200
"""That a provider takes in one go, as long as nobody has asked it."""


def local_engine(settings: Settings, scratch: Path | None = None) -> LocalEngine:
    """Parsers have their folders in *scratch*, by default where temporary files lie."""
    hide_memory()
    return LocalEngine(
        settings.jobs,
        ParseLimits(
            seconds=settings.etl_task_timeout,
            memory_mb=settings.memory_mb,
            pages=settings.max_pages,
        ),
        spares=1 if settings.warm else 0,
        scratch=scratch,
        needs_full_sandbox=settings.sandbox == "require",
    )


def external_workers(settings: Settings) -> dict[str, ExternalWorker]:
    kinds: dict[str, Callable[[str, str, str | None, float], ExternalWorker]] = {
        "secretary": SecretaryWorker,
        "dispatcher": DispatcherWorker,
    }
    return {
        name: kinds[one.dialect](name, one.url, one.api_key.get_secret_value() if one.api_key else None, one.timeout)
        for name, one in settings.workers.items()
    }


def provider_client(settings: Settings, name: str) -> ProviderClient:
    """How one provider is called: as often, as long and as patiently as its settings say."""
    from docmill.adapters.providers.client import Patience, ProviderClient

    chosen = settings.providers[name]
    key = chosen.api_key.get_secret_value() if chosen.api_key else ""
    headers = {"X-Api-Key": key} if (chosen.kind or name) == "docling" else {"Authorization": f"Bearer {key}"}
    return ProviderClient(
        name,
        chosen.url,
        headers if key else {},
        concurrency=chosen.concurrency,
        patience=Patience(tries=chosen.tries, request_s=chosen.timeout),
    )


def provider_engine(settings: Settings, name: str, scratch: Path | None = None) -> SlicedEngine:
    """An engine over the network that takes documents of any length, as far as the policy lets them go there."""
    from docmill.adapters.engines.docling.engine import DoclingEngine
    from docmill.adapters.engines.mineru.engine import MinerUEngine
    from docmill.adapters.engines.slicing.sliced import SlicedEngine

    chosen = settings.providers[name]
    kind = DoclingEngine if (chosen.kind or name) == "docling" else MinerUEngine
    return SlicedEngine(
        kind(provider_client(settings, name), options=chosen.options, max_pages=chosen.max_pages),
        cutter(settings, scratch),
        policy=policy(settings),
        home=chosen.home,
        parallel=chosen.concurrency,
    )


def auto_engine(
    settings: Settings, local: Engine, providers: Mapping[str, SlicedEngine], scratch: Path | None = None
) -> AutoEngine:
    from docmill.adapters.engines.slicing.auto import AutoEngine, Member

    members = {
        name: Member(engine, settings.providers[name].home, Reach(settings.providers[name].max_pages or ASSUMED_PAGES))
        for name, engine in providers.items()
    }
    return AutoEngine(local, members, cutter(settings, scratch), policy(settings))


def cutter(settings: Settings, scratch: Path | None = None) -> Cutter:
    from docmill.adapters.engines.slicing.cutting import Cutter

    needs_full = settings.sandbox == "require"
    return Cutter(memory_mb=settings.memory_mb, scratch=scratch, needs_full_sandbox=needs_full)


def policy(settings: Settings) -> Policy:
    chosen = settings.routing
    return Policy(chosen.stay_home, chosen.budget_pages, chosen.prefer)


async def foresee(settings: Settings, file: Path, engine: str, options: Mapping[str, Any]) -> Foresight:
    """What would happen to a file. Nothing is parsed, and nobody is called."""
    from docmill.adapters.engines import sniff
    from docmill.adapters.engines.local.reading import READERS

    local = local_engine(settings)
    providers = {name: provider_engine(settings, name) for name in settings.providers}
    if engine not in {"local", "auto", *providers}:
        raise Invalid("engine_unknown", engine=engine[:64], known=", ".join(sorted({"local", "auto", *providers})))
    size = (await asyncio.to_thread(file.stat)).st_size
    try:
        facts = await cutter(settings).facts(file, file.name)
        if not size:
            raise DocumentError("document_empty")
        if facts.pages and facts.pages > settings.max_pages:
            raise DocumentError("document_too_many_pages", pages=facts.pages, limit=settings.max_pages)
        if facts.media_type not in READERS and engine in ("local", "auto"):
            raise sniff.refuse(facts.media_type)
        if size > settings.upload_bytes:
            raise TooLarge("upload_too_large", limit=settings.upload_bytes)
    except (DocumentError, TooLarge) as error:
        return Foresight("", size, None, engine, code=error.code, message=error.message)
    offers = auto_engine(settings, local, providers).offers()
    at_once = {name: chosen.concurrency for name, chosen in settings.providers.items()}
    return routing.foresee(facts, engine, offers, stricter(policy(settings), options), parallel=at_once)


def model_chat(name: str, chosen: ModelSettings) -> Chat:
    """A conversation with the model that the settings name."""
    from docmill.adapters.providers.chat import Chat
    from docmill.adapters.providers.client import Patience, ProviderClient

    key = chosen.api_key.get_secret_value() if chosen.api_key else ""
    client = ProviderClient(
        name,
        chosen.url,
        {"Authorization": f"Bearer {key}"} if key else {},
        concurrency=chosen.concurrency,
        patience=Patience(tries=chosen.tries, silence_s=chosen.timeout, request_s=chosen.timeout),
    )
    return Chat(client, chosen.model, chosen.options)


def extractor(settings: Settings) -> Extractor | None:
    if settings.llm is None:
        return None
    from docmill.adapters.extractors.openai import OpenAIExtractor

    return OpenAIExtractor(model_chat("llm", settings.llm), settings.llm.max_tokens, settings.llm.home)


def captioner(settings: Settings) -> Captioner | None:
    if settings.captions is None:
        return None
    from docmill.adapters.captioners.openai import OpenAICaptioner

    chosen = settings.captions
    return OpenAICaptioner(model_chat("captions", chosen), chosen.max_tokens, chosen.home)
