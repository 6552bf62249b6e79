"""A plain handler: FastAPI, a model of the body, SQLAlchemy, one upsert per row, one commit per batch.

`python -m bench.gateway.peer DATABASE PORT` serves it with uvicorn.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import JSON, DateTime, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class ParcelResult(BaseModel):
    task_id: str
    parcel_id: str
    platform: str
    state: str
    county: str
    data: dict[str, Any]
    scraped_at: datetime
    parse_duration_ms: int
    idempotency_key: str | None = None


class Base(DeclarativeBase):
    pass


class Parcel(Base):
    __tablename__ = "parcels"

    parcel_id: Mapped[str] = mapped_column(primary_key=True)
    platform: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(primary_key=True)
    county: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[str]
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    scraped_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    parse_duration_ms: Mapped[int]


_KEY = ["parcel_id", "platform", "state", "county"]


def make_app(database: str) -> FastAPI:
    app = FastAPI()
    engine = create_async_engine(database)
    sessions = async_sessionmaker(engine)
    is_sqlite = engine.dialect.name == "sqlite"
    insert: Any = sqlite.insert if is_sqlite else postgresql.insert

    if is_sqlite:

        @event.listens_for(engine.sync_engine, "connect")
        def durable(connection: Any, _record: Any) -> None:
            """Sets the same durability as the gateway's, in WAL mode."""
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA busy_timeout = 60000")

    @app.get("/health")
    async def health() -> dict[str, str]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        return {"status": "ok"}

    @app.post("/internal/results")
    async def results(batch: list[ParcelResult]) -> dict[str, int]:
        async with sessions() as session:
            for entry in batch:
                row = entry.model_dump(exclude={"idempotency_key"})
                statement = insert(Parcel).values(**row)
                changed = {name: statement.excluded[name] for name in row if name not in _KEY}
                await session.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changed))
            await session.commit()
        return {"inserted": len(batch)}

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning", access_log=False)
