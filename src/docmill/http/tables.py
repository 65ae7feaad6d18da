"""Tables: the JSON values of a project."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from docmill.core.body_limits import MAX_LARGE_JSON_NODES, accept_body
from docmill.core.face import iso
from docmill.http.body import read_model, takes_model
from docmill.http.bound import Bound
from docmill.http.caller import Caller
from docmill.http.errors import problems
from docmill.http.strict import StrictModel
from docmill.http.uploads import MAX_ROW_ID
from docmill.http.wire import Json
from docmill.ports import Table
from docmill.work import tables

router = APIRouter(prefix="/api/v1", tags=["tables"], responses=problems(403, 404, 409, 429))

MAX_BODY_BYTES = 20 * 1024**2

Name = Annotated[str, Field(min_length=1, max_length=255)]
TableId = Annotated[int, Path(ge=1, le=MAX_ROW_ID)]
ProjectId = Annotated[int, Path(ge=0, le=MAX_ROW_ID)]


class TableIn(StrictModel):
    name: Name
    data: Any = Field(default_factory=dict, description="Any JSON value")


class TableChange(StrictModel):
    name: Name | None = Field(None, description="Left out: the name stays")
    data: Any = Field(description="Any JSON value; it replaces the old one")


class TableEntry(BaseModel):
    id: int
    project_id: int
    name: str
    created_at: datetime
    updated_at: datetime


class TableOut(TableEntry):
    data: Any


class TableList(BaseModel):
    tables: list[TableEntry]
    total: int


@router.post(
    "/projects/{project_id}/tables",
    status_code=201,
    response_model=TableOut,
    summary="Make a table",
    openapi_extra=takes_model(TableIn),
)
@accept_body(max_bytes=MAX_BODY_BYTES, max_nodes=MAX_LARGE_JSON_NODES)
async def create_table(project_id: ProjectId, request: Request, who: Caller, ports: Bound) -> Json:
    """Create a table, which holds any JSON value, in a project."""
    table = await read_model(request, TableIn)
    return Json(table_json(await tables.add(ports, who, project_id, table.name, table.data)), 201)


@router.get("/projects/{project_id}/tables", response_model=TableList, summary="A project's tables, without their data")
async def list_tables(project_id: ProjectId, who: Caller, ports: Bound) -> Json:
    """The tables of a project, without their data."""
    found = await tables.listed(ports, who, project_id)
    return Json({"tables": [entry_json(table) for table in found], "total": len(found)})


@router.get("/tables/{table_id}", response_model=TableOut, summary="A table")
async def get_table(table_id: TableId, who: Caller, ports: Bound) -> Json:
    """A table with its data."""
    return Json(table_json(await tables.get(ports, who, table_id)))


@router.put(
    "/tables/{table_id}",
    response_model=TableOut,
    summary="Replace a table's data",
    openapi_extra=takes_model(TableChange),
)
@accept_body(max_bytes=MAX_BODY_BYTES, max_nodes=MAX_LARGE_JSON_NODES)
async def replace_table(table_id: TableId, request: Request, who: Caller, ports: Bound) -> Json:
    """Replace the data of a table, and its name if one is given."""
    change = await read_model(request, TableChange)
    return Json(table_json(await tables.replace(ports, who, table_id, name=change.name, data=change.data)))


@router.delete("/tables/{table_id}", status_code=204, summary="Delete a table")
async def delete_table(table_id: TableId, who: Caller, ports: Bound) -> None:
    """Delete a table with its data."""
    await tables.remove(ports, who, table_id)


@router.get("/tables/{table_id}/data", summary="The JSON value at a pointer")
async def get_table_value(
    table_id: TableId,
    who: Caller,
    ports: Bound,
    pointer: Annotated[str, Query(description="JSON Pointer (RFC 6901); empty: the whole value")] = "",
) -> Json:
    """The value at a JSON Pointer in the data of a table."""
    return Json(await tables.read_at(ports, who, table_id, pointer))


def entry_json(table: Table) -> dict[str, Any]:
    return {
        "id": table.id,
        "project_id": table.project_id,
        "name": table.name,
        "created_at": iso(table.created_ms),
        "updated_at": iso(table.updated_ms),
    }


def table_json(table: Table) -> dict[str, Any]:
    return entry_json(table) | {"data": table.data}
