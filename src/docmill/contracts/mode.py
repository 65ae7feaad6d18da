"""How strictly to judge: consistency of checksums, and which media types assets may have."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mode:
    strict: bool = False
    media_guard: tuple[str, ...] = ()


_mode: ContextVar[Mode] = ContextVar("docmill_contracts_mode", default=Mode())  # noqa: B039 - Mode is immutable


def current() -> Mode:
    return _mode.get()


def chosen(strict: bool | None, media_guard: tuple[str, ...]) -> Mode:
    """What the caller asks for, and the ambient mode for what they leave open."""
    ambient = _mode.get()
    if (strict is None or strict is ambient.strict) and not media_guard:
        return ambient
    return Mode(
        strict=ambient.strict if strict is None else strict,
        media_guard=tuple(prefix.lower() for prefix in media_guard) or ambient.media_guard,
    )


@contextmanager
def use(mode: Mode) -> Iterator[None]:
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


@contextmanager
def strict_mode(on: bool = True) -> Iterator[None]:
    """Inside, digests must equal what they digest, and external blobs need one."""
    with use(replace(current(), strict=on)):
        yield


@contextmanager
def media_guard(*prefixes: str) -> Iterator[None]:
    """Inside, the media type of an asset that is not inline begins with one of *prefixes*."""
    with use(replace(current(), media_guard=tuple(prefix.lower() for prefix in prefixes))):
        yield
