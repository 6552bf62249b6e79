"""What people and their programs ask of the gateway: /v1. Every route needs a reader's word, some an admin's."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from parcelpost.gateway.access import Access
from parcelpost.gateway.declared import ADMIN_TOKEN, READ_TOKEN
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.read_api import fleet_routes, parcel_routes


def routers(parts: Parts) -> tuple[APIRouter, APIRouter]:
    access = Access(parts.settings, parts.tokens)

    async def reader(request: Request) -> None:
        access.reader(request)

    reading = APIRouter(prefix="/v1", tags=["reading"], dependencies=[Depends(reader), READ_TOKEN, ADMIN_TOKEN])
    parcel_routes.add_lists(reading, parts)
    parcel_routes.add_one(reading, parts)
    parcel_routes.add_exports(reading, parts)
    fleet_routes.add_views(reading, parts)
    ordering = APIRouter(prefix="/v1", tags=["ordering"], dependencies=[ADMIN_TOKEN])
    fleet_routes.add_orders(ordering, parts, access)
    return reading, ordering
