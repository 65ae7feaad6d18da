"""The page of all operations, made from the OpenAPI: `python -m docmill.http.reference [FILE]` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from docmill.http.app import DOORS
from docmill.http.openapi import METHODS, build_openapi, operation_id

INTRODUCTION = """\
<!-- Made by 'python -m docmill.http.reference'; a test keeps it the same as the OpenAPI. -->
# API

A running service describes itself: `/openapi.json` is an OpenAPI 3.1 document with a sentence and an example for every
operation, request and answer, and `/docs` opens the same as a page. Neither needs a network.

## Conventions
- **Credential**: `Authorization: Bearer` with an API key or a JWT, or `X-API-Key`. Signed links and callbacks carry
  their own.
- **Errors** are `application/problem+json` (RFC 9457). `code` is stable, `next_step` says what to do, `type` is the
  path of a page that explains the code in English, German or Chinese, and `errors` names every field that is wrong.
- **Unknown fields** are refused with their name (422), except on routes whose bodies other products define:
  docling-serve, MinerU, callbacks.
- **Submissions**: table, rule, engine and options are checked before anything is created. With an `Idempotency-Key`
  the same key and body get the first answer again.
- **Lists** have `limit`, and `next_cursor`, which is the `cursor` of the next page. `status=running` finds tasks that
  run, whatever their stage.
- **Waiting**: `wait=30` on a task, or server-sent events on `/events`.

## Generate a client
For TypeScript:

```sh
npm install openapi-fetch && npm install --save-dev openapi-typescript typescript@5
npx openapi-typescript http://127.0.0.1:8321/openapi.json --default-non-nullable false -o api.ts
```

```ts
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const docmill = createClient<paths>({ baseUrl: "http://127.0.0.1:8321" });
const { data, error } = await docmill.GET("/api/v1/etl/tasks/{task_id}", { params: { path: { task_id: 7 } } });
console.log(data ? data.status : error.next_step);
```

## Operations
"""


def build_reference() -> str:
    app = FastAPI(title="docmill", generate_unique_id_function=operation_id)
    for door in DOORS:
        app.include_router(door.router)
    return "\n".join([INTRODUCTION.rstrip(), *_lines(build_openapi(app, ""))]) + "\n"


def _lines(schema: dict[str, Any]) -> Iterator[str]:
    for tag in schema["tags"]:
        yield from ("", f"### {tag['name']}", tag["description"], "", "| operation | request | |", "|---|---|---|")
        for path, item in schema["paths"].items():
            for method, operation in item.items():
                if method in METHODS and operation["tags"][0] == tag["name"]:
                    request = f"`{method.upper()} {path}`"
                    yield f"| `{operation['operationId']}` | {request} | {' '.join(operation['description'].split())} |"
    yield from ("", "### Messages to webhooks", "", "| event | |", "|---|---|")
    for name, item in schema["webhooks"].items():
        yield f"| `{name}` | {item['post']['description']} |"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/reference/api.md")
    target.write_text(build_reference(), encoding="utf-8")
