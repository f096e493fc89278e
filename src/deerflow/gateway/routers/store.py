"""Routes for the store: items that outlive threads, separate for each user."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from langgraph.store.base import Item
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.domain import folder_name
from deerflow.gateway.deps import CurrentApp, CurrentUser, json_response
from deerflow.gateway.openapi import answers
from deerflow.gateway.pagination import page_of, total_of
from deerflow.runtime.json_views import stamp

router = APIRouter(tags=["store"])

OWN = "user"
"""Prefix of client namespaces, before the user's id: DeerFlow's own items are not accessible."""
Label = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^.\x00]*$")]
"""A part of a namespace; parts are separated by dots."""
Namespace = list[Label]
Joined = Annotated[str, Field(max_length=8192, pattern=r"^[^\x00]*$")]
"""Parts of a namespace, joined by dots."""


class ItemPut(BaseModel):
    """Something to keep."""

    namespace: Annotated[Namespace, Field(min_length=1, max_length=32)]
    key: str = Field(min_length=1, max_length=1024)
    value: dict[str, Any]
    index: Literal[False] | list[str] | None = None
    ttl: float | None = Field(None, gt=0, allow_inf_nan=False, description="Minutes.")


class ItemName(BaseModel):
    """Where something is kept."""

    namespace: Annotated[Namespace, Field(max_length=32)] = []
    key: str


class ItemSearch(BaseModel):
    """What to look for."""

    namespace_prefix: Annotated[Namespace, Field(max_length=32)] = []
    filter: dict[str, Any] | None = None
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0)
    query: str | None = None
    refresh_ttl: bool | None = None


class NamespaceSearch(BaseModel):
    """Which namespaces to list."""

    prefix: Annotated[Namespace, Field(max_length=32)] | None = None
    suffix: Annotated[Namespace, Field(max_length=32)] | None = None
    max_depth: int | None = Field(None, ge=1)
    limit: int = Field(100, ge=1, le=1000)
    offset: int = Field(0, ge=0)


@router.put("/store/items", **answers(None, status=204))
async def put_store_item(body: ItemPut, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Store an item under a namespace and key, in place of an earlier one.

    Each user has a store of their own; it outlives threads.
    """
    options: dict[str, Any] = {} if body.ttl is None else {"ttl": body.ttl}
    await deerflow.storage.store.aput(
        _inside(user, body.namespace), body.key, body.value, index=body.index, **options
    )
    return Response(status_code=204)


@router.get("/store/items", **answers("StoreItem | None"))
async def get_store_item(
    user: CurrentUser,
    deerflow: CurrentApp,
    key: str,
    namespace: Annotated[list[Joined] | None, Query()] = None,
    refresh_ttl: bool | None = None,
) -> Response:
    """Return an item of the store; null where there is none.

    Parts of the namespace are joined by dots, or sent one by one.
    """
    parts = [part for text in namespace or () for part in text.split(".") if part]
    item = await deerflow.storage.store.aget(_inside(user, parts), key, refresh_ttl=refresh_ttl)
    return json_response(_item_out(item) if item else None)


@router.delete("/store/items", **answers(None, status=204))
async def delete_store_item(body: ItemName, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """Delete an item of the store, if it exists."""
    await deerflow.storage.store.adelete(_inside(user, body.namespace), body.key)
    return Response(status_code=204)


@router.post("/store/items/search", **answers("StoreItems"))
async def search_store_items(body: ItemSearch, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the items below a namespace.

    `filter` compares top-level values; `query` searches by meaning where the store has an index, and has no
    effect elsewhere. The header `X-Pagination-Total` has the number of all that match.
    """
    store, prefix = deerflow.storage.store, _inside(user, body.namespace_prefix)
    limit, offset = body.limit, body.offset
    items = await store.asearch(
        prefix, query=body.query, filter=body.filter, limit=limit, offset=offset, refresh_ttl=body.refresh_ttl
    )
    count = partial(store.acount, prefix, filter=body.filter)
    total = await total_of(items, limit=limit, offset=offset, count=count)
    page, headers = page_of(items, limit=limit, offset=offset, total=total)
    shown = [{**_item_out(item), "score": item.score} for item in page]
    return json_response({"items": shown}, headers=headers)


@router.post("/store/namespaces", **answers("StoreNamespaces"))
async def list_store_namespaces(body: NamespaceSearch, user: CurrentUser, deerflow: CurrentApp) -> Response:
    """List the namespaces that hold items."""
    own = _inside(user, ())
    found = await deerflow.storage.store.alist_namespaces(
        prefix=_inside(user, body.prefix or ()),
        suffix=tuple(body.suffix) if body.suffix else None,
        max_depth=None if body.max_depth is None else body.max_depth + len(own),
        limit=body.limit,
        offset=body.offset,
    )
    return json_response({"namespaces": [list(namespace[len(own) :]) for namespace in found]})


def _inside(user: str, namespace: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    # A part of a namespace has no dots, but user ids may be email addresses.
    return (OWN, folder_name(user), *namespace)


def _item_out(item: Item) -> dict[str, Any]:
    return {
        "namespace": list(item.namespace[2:]),
        "key": item.key,
        "value": item.value,
        "created_at": stamp(item.created_at),
        "updated_at": stamp(item.updated_at),
    }
