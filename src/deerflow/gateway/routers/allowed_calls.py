"""Tool calls that run unasked, over HTTP: see them and take them back; an answer to a question makes them."""

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from deerflow.agents.allowed_calls import AllowedCall, AllowedCalls
from deerflow.gateway.deps import CurrentUser, House

router = APIRouter(tags=["approvals"])


class AllowedCallList(BaseModel):
    """The calls that a user allowed, newest first."""

    allowed_calls: list[AllowedCall]


@router.get("/allowed-calls")
async def list_allowed_calls(user: CurrentUser, house: House) -> AllowedCallList:
    """Return the calls that run unasked because this user said so."""
    return AllowedCallList(allowed_calls=await AllowedCalls(house.storage.store, user).all())


@router.delete("/allowed-calls/{allowed_id}", status_code=204)
async def revoke_allowed_call(allowed_id: str, user: CurrentUser, house: House) -> Response:
    """Take a permission back: the call is asked about again."""
    await AllowedCalls(house.storage.store, user).revoke(allowed_id)
    return Response(status_code=204)
