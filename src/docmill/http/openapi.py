"""The OpenAPI document: what FastAPI knows of the routes, and everything that it does not.

FastAPI gives paths, parameters and models. Added here: what the service is, tags, servers, credentials by route, the
callbacks of external workers (which FastAPI never sees), the messages to webhooks, and a sentence and an example for
every request and answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from docmill.http.callback_paths import add_callbacks
from docmill.http.errors import Problem
from docmill.http.example_values import ANSWERS, PARAMETERS, SAMPLES
from docmill.http.examples import add_examples
from docmill.http.message_paths import add_messages

REF: Final = "#/components/schemas/{model}"
METHODS: Final = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})
TAGS: Final = {
    "tasks": "Upload documents, process them as tasks, follow them and read their results.",
    "rules": "How the text of a document becomes values: with a language model, or not at all.",
    "tables": "JSON values of a project, into which results can be mounted.",
    "documents": "Normalised documents and their assets, with their bytes.",
    "contracts": "The contracts of documents and assets: check a value, read a schema.",
    "jobs": "Jobs at external workers, and the callbacks by which the workers report.",
    "webhooks": "Messages about tasks that ended, to addresses of your own (Standard Webhooks).",
    "objects": "Objects behind signed links, for external workers.",
    "operations": "Health, readiness, metrics, and the meaning of codes.",
    "docling-serve": "The convert routes of docling-serve v1, for its clients.",
    "MinerU": "The routes of MinerU's server and of its cloud (API v4), for their clients.",
}
SCHEMES: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (`dm_…`) or a JWT."},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key (`dm_…`)."},
    "metrics_token": {"type": "http", "scheme": "bearer", "description": "The setting `metrics_token`."},
    "callback_token": {"type": "http", "scheme": "bearer", "description": "The token of the job."},
    "callback_token_header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Callback-Token",
        "description": "The token of the job.",
    },
}
USUAL: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"api_key": []}]
NONE: Final[list[dict[str, list[str]]]] = []
SECURITY: Final = {
    "get_health": NONE,
    "get_ready": NONE,
    "explain_code": NONE,
    "docling_get_livez": NONE,
    "docling_get_readyz": NONE,
    "get_metrics": [{"metrics_token": []}, *USUAL],
    # The address itself is the credential.
    "download_object": NONE,
    "upload_object": NONE,
    "mineru_cloud_upload_file": NONE,
    "mineru_cloud_download_result": NONE,
    "report_to_job": [{"callback_token": []}, {"callback_token_header": []}],
    "report_end_of_job": [{"callback_token": []}],
}
"""Of operations that are not for API keys and JWTs alone."""


class OpenApiDocument:
    """Builds the OpenAPI document once, when it is asked for. That takes half a second of CPU time, so it is done in a
    thread: anyone may ask."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._building = threading.Lock()
        self._json = b""

    def build(self) -> dict[str, Any]:
        with self._building:
            if not self._app.openapi_schema:
                self._app.openapi_schema = build_openapi(self._app, self._app.state.ports.app_url)
                self._json = msgspec.json.encode(self._app.openapi_schema)
            return self._app.openapi_schema

    async def answer(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        if not self._json:
            await asyncio.to_thread(self.build)
        return Response(self._json, media_type="application/json")


def operation_id(route: APIRoute) -> str:
    """The name of the function: `submit_task`."""
    return route.name


def build_openapi(app: FastAPI, app_url: str) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title,
        version=app.version,
        summary="Turns documents into clean, validated, addressable content.",
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        servers=_servers(app_url),
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    )
    schema["externalDocs"] = {"url": "/reference", "description": "The same as a page of the service."}
    parts = schema.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template=REF)
    schemas.update({**problem.pop("$defs", {}), "Problem": problem})
    add_callbacks(schema)
    for _, operation in operations(schema):
        _hoist(operation, schemas)
        _describe(operation)
    parts["securitySchemes"] = SCHEMES
    schema["security"] = USUAL
    add_examples(schema)
    add_messages(schema)
    return schema


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every operation with its path."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                yield path, operation


def _servers(app_url: str) -> list[dict[str, Any]]:
    here = {"url": "/", "description": "The service that this document comes from"}
    return [{"url": app_url.rstrip("/"), "description": "The public address"}, here] if app_url else [here]


def _hoist(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Definitions inside a body belong to the components, where references look for them."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        for name, one in content["schema"].pop("$defs", {}).items():
            schemas.setdefault(name, one)
        if (title := content["schema"].get("title")) and "properties" in content["schema"]:
            schemas.setdefault(title, content["schema"])
            content["schema"] = {"$ref": REF.format(model=title)}


def _describe(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    sample = SAMPLES[name]
    if name in SECURITY:
        operation["security"] = SECURITY[name]
    for parameter in operation.get("parameters", ()):
        sentence, value = PARAMETERS.get(parameter["name"], ("", None))
        if not parameter.get("description"):
            parameter["description"] = parameter["schema"].get("description") or sentence
        if value is not None and parameter["in"] == "path":
            parameter["example"] = value
    if body := operation.get("requestBody"):
        body["description"] = sample.asks
        for content in body["content"].values():
            content["example"] = sample.body
    good, *others = sorted(operation["responses"].items(), key=lambda one: one[0] != _good_status(operation))
    good[1]["description"] = sample.says
    for media, content in good[1].get("content", {}).items():
        _show(content, sample.others.get(media, sample.answer), media)
    for _, response in others:
        for media, content in response.get("content", {}).items():
            _show(content, ANSWERS.get(_model(content)), media)


def _good_status(operation: dict[str, Any]) -> str:
    """The first that the route declares; FastAPI puts it first."""
    return next(str(status) for status in operation["responses"] if status.startswith("2"))


def _model(content: dict[str, Any]) -> str:
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


def _show(content: dict[str, Any], value: Any, media: str) -> None:
    is_binary = content.get("schema", {}).get("format") == "binary"
    if value is not None and media != "application/problem+json" and not is_binary:
        content["example"] = value
