"""The page of each code, at which the `type` of a problem points. Open to all, in the reader's language."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from docmill.core.catalogue import Entry, best_language, entry, suggest
from docmill.core.errors import NotFound
from docmill.http.errors import CODE_PAGES, problem_title, problems

REFERENCE: Final = "/reference"
STYLE: Final = "body{font:1rem/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto}dt{font-weight:600}"
CSP: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HTML_LANG: Final = {"en": "en", "de": "de", "zh": "zh-Hans"}
WORDS: Final = {
    "en": ("Next step", "HTTP status", "Retrying helps", "yes", "no", "API reference"),
    "de": ("Nächster Schritt", "HTTP-Status", "Wiederholen hilft", "ja", "nein", "API-Referenz"),
    "zh": ("下一步", "HTTP 状态", "重试有用", "是", "否", "API 参考"),
}

router = APIRouter(tags=["operations"])

Code = Annotated[str, Path(pattern="^[a-z0-9_]{1,64}$", description="The code of a problem, such as task_not_found.")]


@router.get(
    CODE_PAGES + "{code}",
    response_class=HTMLResponse,
    summary="Explain a code",
    responses={404: problems(404)[404], 422: problems()[422]},
)
async def explain_code(code: Code, request: Request) -> Response:
    """The meaning of a code and what to do about it, as a page in the language of `Accept-Language`."""
    found = entry(code)
    if found is None:
        raise NotFound("code_unknown", name=code, close=", ".join(suggest(code)) or "none")
    language = best_language(request.headers.get("accept-language", ""))
    headers = {"Content-Language": HTML_LANG[language], "Content-Security-Policy": CSP, "Vary": "Accept-Language"}
    return HTMLResponse(render_page(found, language), headers=headers)


@router.get("/docs", include_in_schema=False)
async def open_docs() -> Response:
    return RedirectResponse(REFERENCE)


def render_page(found: Entry, language: str) -> str:
    sentence, step = found.text[language]
    step_word, status_word, retry_word, yes, no, reference = WORDS[language]
    rows = [(step_word, step), (retry_word, yes if found.retryable else no)]
    if found.status is not None:
        rows.insert(1, (status_word, str(found.status)))
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return (
        f'<!doctype html><html lang="{HTML_LANG[language]}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{found.code} · docmill</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{problem_title(found.code)}</h1><p><code>{found.code}</code></p><p>{escape(sentence)}</p>"
        f'<dl>{listed}</dl><p><a href="{REFERENCE}">{reference}</a></p></main></body></html>'
    )
