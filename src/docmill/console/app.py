"""The console as routes: every page says who comes, calls a use case and renders a template."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from docmill.console.pages import (
    deliveries,
    documents,
    inbox,
    preferences,
    reference,
    rules,
    settings,
    sign_in,
    task,
    tasks,
    workers,
)
from docmill.console.rendering import Renderer
from docmill.console.visit import SEED_COOKIE, Form, Visit, open_visit, read_form
from docmill.core.access import Principal
from docmill.core.body_limits import accept_body
from docmill.core.errors import DocmillError, NotFound, StageFailed, Unauthorized, unwrap
from docmill.ports import Ports
from docmill.work.doctor import Finding
from docmill.work.sessions import COOKIE, Sessions

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
MAX_FORM_BYTES = 2 * 1024**2
"""A rule with its prompt and schema, percent-encoded."""
MAX_OPEN_FORM_BYTES = 16 * 1024
"""Of a form that anybody may send."""
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

log = structlog.get_logger("docmill.console")

Page = Callable[["Console", Visit], Awaitable[Response]]
ErrorAnswer = Callable[[Request, Exception], Awaitable[Response]]
Action = Callable[["Console", Visit, Form], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What the console must know besides the ports."""

    version: str = "0"
    openapi: Callable[[], dict[str, Any]] = dict
    examine: Callable[[], AsyncIterator[Finding]] | None = None
    """What `docmill doctor` finds."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings in force, secrets left out."""
    needs_sign_in: bool = False
    client_of: Callable[[Scope], str] = lambda scope: (scope.get("client") or ("unknown", 0))[0]
    """Who limits on sign-in count as one client."""


class Console:
    def __init__(
        self,
        ports: Ports,
        *,
        identify: Callable[[Headers], Awaitable[Principal]],
        sessions: Sessions,
        options: ConsoleOptions,
    ) -> None:
        self.ports = ports
        self.identify = identify
        self.sessions = sessions
        self.options = options
        self.static = _static()
        self.renderer = Renderer(options.version, {name: mark for name, (mark, _) in self.static.items()})

    def routes(self) -> list[Route]:
        found = [Route("/static/{name}", self._send_static, methods=["GET"])]
        for path, page in PAGES.items():
            found.append(Route(path, self._page(page), methods=["GET"]))
        for path, action in ACTIONS.items():
            # The console identifies the visitor before it reads the form, and sends strangers to its sign-in page.
            endpoint = accept_body(max_bytes=MAX_FORM_BYTES, is_public=True)(self._action(action))
            found.append(Route(path, endpoint, methods=["POST"]))
        open_form = accept_body(max_bytes=MAX_OPEN_FORM_BYTES, is_public=True)
        found.append(Route("/sign-in", self._open_page(sign_in.show), methods=["GET"]))
        found.append(Route("/sign-in", open_form(self._open_action(sign_in.enter)), methods=["POST"]))
        found.append(Route("/preferences", open_form(self._for_all(preferences.change)), methods=["POST"]))
        return found

    def render(self, visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
        body = self.renderer.render(visit, template, needs_sign_in=self.options.needs_sign_in, **values)
        return self._dressed(visit, Response(body, status, media_type="text/html"))

    def confirm(self, visit: Visit, form: Form, *, title: str, losses: list[str], button: str, back: str) -> Response:
        """Ask before something is destroyed, on a page of its own: it works without JavaScript."""
        return self.render(
            visit,
            "confirm.html",
            heading=title,
            losses=losses,
            button=button,
            back=back,
            action=visit.request.url.path,
            fields=form.fields,
        )

    def redirect(self, visit: Visit, to: str) -> Response:
        return self._dressed(visit, RedirectResponse(to, 303))

    def _dressed(self, visit: Visit, response: Response) -> Response:
        for name, value in PAGE_HEADERS.items():
            response.headers.setdefault(name, value)
        if visit.request.cookies.get(SEED_COOKIE) != visit.seed:
            secure = visit.request.url.scheme == "https"
            response.set_cookie(SEED_COOKIE, visit.seed, httponly=True, samesite="strict", secure=secure)
        return response

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                who = await self.identify(request.headers)
            except Unauthorized:
                return self._to_sign_in(request)
            return await self._guarded(page, self._visit(request, who))

        return answer

    def _action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def acted(console: Console, visit: Visit) -> Response:
            return await action(console, visit, await read_form(visit, self.sessions))

        return self._page(acted)

    def _open_page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """A page for people who have not signed in."""

        async def answer(request: Request) -> Response:
            return await self._guarded(page, self._visit(request, NOBODY))

        return answer

    def _open_action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def acted(console: Console, visit: Visit) -> Response:
            return await action(console, visit, await read_form(visit, self.sessions))

        return self._open_page(acted)

    def _for_all(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        """An action of visitors, signed in or not."""

        async def answer(request: Request) -> Response:
            try:
                await self.identify(request.headers)
            except Unauthorized:
                return await self._open_action(action)(request)
            return await self._action(action)(request)

        return answer

    async def _guarded(self, page: Page, visit: Visit) -> Response:
        visit.request.state.who = visit.who if visit.who is not NOBODY else None
        try:
            return await page(self, visit)
        except Exception as error:
            fault = unwrap(error)
            if isinstance(fault, DocmillError):
                return self.failed(visit, fault)
            log.error("unexpected_error", path=visit.request.url.path, exc_info=error)
            return self.failed(visit, StageFailed("internal_error"))

    def failed(self, visit: Visit, error: DocmillError) -> Response:
        """What went wrong, with its code and the next step."""
        request_id = visit.request.scope.get("state", {}).get("request_id", "")
        return self.render(visit, "failed.html", error.status, error=error, request_id=request_id, page="")

    def pages_for_browsers(self, answer: Callable[..., Any]) -> ErrorAnswer:
        """An error as a page where a browser asks for one; programs get what *answer* makes of it."""

        async def answered(request: Request, error: Exception) -> Response:
            response: Response = await answer(request, error)
            if request.method != "GET" or not _prefers_html(request.headers.get("accept", "")):
                return response
            fault = unwrap(error)
            if response.status_code == 404 and not isinstance(fault, DocmillError):
                fault = NotFound("route_not_found")
            if not isinstance(fault, DocmillError):
                return response
            try:
                who = await self.identify(request.headers)
            except DocmillError:
                who = NOBODY
            return self.failed(self._visit(request, who), fault)

        return answered

    def _visit(self, request: Request, who: Principal) -> Visit:
        return open_visit(request, self.ports, who, self.sessions, has_session=COOKIE in request.cookies)

    def _to_sign_in(self, request: Request) -> Response:
        target = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?next={quote(target)}", 303, headers={"Cache-Control": "no-store"})

    async def _send_static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.static:
            raise NotFound("route_not_found")
        mark, body = self.static[name]
        headers = {"ETag": f'"{mark}"', "Cache-Control": "public, max-age=31536000, immutable"}
        if request.query_params.get("v") != mark:
            # An address without the file's mark may mean another version tomorrow.
            headers["Cache-Control"] = "no-cache"
        if request.headers.get("if-none-match") == f'"{mark}"':
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=KINDS[name[name.rindex(".") :]])


NOBODY = Principal(user="", tenant="")

PAGES: dict[str, Page] = {
    "/": inbox.show,
    "/tasks": tasks.show,
    "/tasks/rows": tasks.rows,
    "/tasks/counts": tasks.counts,
    "/tasks/{task_id:int}": task.show,
    "/tasks/{task_id:int}/live": task.live,
    "/tasks/{task_id:int}/artifacts/{name}": task.artifact,
    "/documents/{document_id:uuid}": documents.show,
    "/rules": rules.show,
    "/rules/new": rules.new,
    "/rules/{rule_id:int}": rules.edit,
    "/deliveries": deliveries.show,
    "/workers": workers.show,
    "/settings": settings.show,
    "/reference": reference.show,
}
ACTIONS: dict[str, Action] = {
    "/tasks/bulk": tasks.bulk,
    "/tasks/retry-failed": tasks.retry_failed,
    "/tasks/{task_id:int}/cancel": task.cancel,
    "/tasks/{task_id:int}/retry": task.retry,
    "/tasks/{task_id:int}/mount": task.mount,
    "/rules/new": rules.add,
    "/rules/check": rules.check,
    "/rules/{rule_id:int}": rules.save,
    "/rules/{rule_id:int}/delete": rules.delete,
    "/rules/new/test": rules.test,
    "/rules/{rule_id:int}/test": rules.test,
    "/deliveries/webhooks": deliveries.add,
    "/deliveries/webhooks/{webhook_id}/test": deliveries.test,
    "/deliveries/webhooks/{webhook_id}/redeliver": deliveries.redeliver_dead,
    "/deliveries/webhooks/{webhook_id}/switch": deliveries.switch,
    "/deliveries/webhooks/{webhook_id}/rotate": deliveries.rotate,
    "/deliveries/webhooks/{webhook_id}/remove": deliveries.remove,
    "/deliveries/{notice_id:int}/redeliver": deliveries.redeliver,
    "/settings/keys": settings.create_key,
    "/settings/keys/revoke": settings.revoke_key,
    "/sign-out": sign_in.leave,
}


def _prefers_html(accept: str) -> bool:
    """As browsers say it. Programs ask for JSON or for anything."""
    return "text/html" in accept.lower()


def _static() -> dict[str, tuple[str, bytes]]:
    """The files that pages load, each with a mark of its content."""
    found = {}
    for item in (files("docmill.console") / "static").iterdir():
        body = item.read_bytes()
        found[item.name] = (sha256(body).hexdigest()[:12], body)
    return found
