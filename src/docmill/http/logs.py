"""Structured logs without secrets: ids, never bodies or tokens.

Secrets are removed twice: by the name of the field that holds them, and by what they look like wherever they stand.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TextIO

import structlog

REDACTED = "[redacted]"
MAX_TEXT = 4_000
MAX_LINES = 200
MAX_DEPTH = 6

_SECRET_NAMES = re.compile(
    r"authorization|api[_-]?key|x[_-]callback[_-]token|token$|secret|password|passwd|signature|signing[_-]?key"
    r"|cookie|credential$|private[_-]?key|client[_-]?secret|database[_-]?url|redis[_-]?url|dsn",
    re.IGNORECASE,
)
_SECRET_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b((?:set-)?cookie['\"]?\s*[:=]\s*)[^\r\n]+"), rf"\1{REDACTED}"),
    (
        re.compile(
            r"(?i)((?:authorization|password|passwd|secret|token|api[_-]?key|signature)['\"]?\s*[:=]\s*['\"]?)"
            r"(?:(?:bearer|basic)\s+)?[^\s,;'\"}&]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\bdm_[A-Za-z0-9_-]{4,}"), REDACTED),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]{4,}"), REDACTED),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), REDACTED),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), REDACTED),
    (re.compile(r"(?i)\bsha256=[0-9a-f]{32,}"), f"sha256={REDACTED}"),
    (
        re.compile(
            r"(?i)([?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|sig|signature|token|access_token|api_key|apikey|key|code"
            r"|awsaccesskeyid|expires|se|sp|sv|sr)=)[^&\s'\"]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), f"://{REDACTED}@"),
    (re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\b"), "[e-mail]"),
)
_HINT = re.compile(
    r"bearer|basic|dm_|whsec_|sk-|eyj|sha256=|cookie|authorization|passw|secret|token|api[_-]?key|signature|[?&@]",
    re.IGNORECASE,
)
"""In every secret that the patterns above know: most texts are clean, and one look shows it."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def configure(*, json: bool = True, level: str = "info", stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library's logging, which end in the same lines."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    last: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), drop_coloured_copy, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # They repeat what our access log says (uvicorn), or quote what a client sent (the others).
    for noisy in ("uvicorn.access", "python_multipart", "httpx2", "httpcore2", "arq.worker"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    for chatty in ("uvicorn", "uvicorn.error"):
        logging.getLogger(chatty).handlers[:] = []
        logging.getLogger(chatty).propagate = True


def drop_coloured_copy(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """structlog processor: uvicorn sends each message a second time, with escape codes for a terminal."""
    event.pop("color_message", None)
    return event


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """structlog processor: no secret and no line break leaves in any field."""
    for name, value in list(event.items()):
        if name == "exception":
            # Lines of a trace stay lines, indented: none of them can pass for a log line of its own.
            event[name] = "\n    ".join(clean_text(line) for line in str(value).splitlines()[-MAX_LINES:])
        elif name not in ("_record", "_from_structlog"):
            event[name] = _clean(name, value, 0)
    return event


def clean_text(text: str) -> str:
    """The text without what looks like a secret, on one line."""
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT // 4]} … {text[-MAX_TEXT * 3 // 4 :]}"
    if _HINT.search(text):
        for pattern, instead in _SECRET_VALUES:
            text = pattern.sub(instead, text)
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAMES.search(name))


def _clean(name: str, value: Any, depth: int) -> Any:
    if _is_secret(name) and value not in (None, "", True, False):
        return REDACTED
    if isinstance(value, bool | int | float) or value is None:
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _clean(str(key), one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean("", one, depth + 1) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    return clean_text(value if isinstance(value, str) else str(value))
