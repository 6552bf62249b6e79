"""Tasks that a person or a program gives to a gateway, in the words in which it hands them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct, structs

from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Task
from parcelpost.places import normalized
from parcelpost.wire.reading import Piece, elements, value
from parcelpost.wire.requests import CONTROL, MOST_NAME_BYTES
from parcelpost.wire.work import name_of, read_task


class TaskOrder(Struct, frozen=True, kw_only=True):
    """For documents: `read_orders` takes numbers for texts, too, and ignores what it does not know."""

    task_id: Annotated[str, Meta(min_length=1, max_length=MOST_NAME_BYTES)]
    platform: Annotated[str, Meta(min_length=1, max_length=MOST_NAME_BYTES)]
    target: Mapping[str, Json]
    type: str = "scrape"
    priority: Annotated[int, Meta(ge=1, le=4)] = 3
    max_retries: Annotated[int, Meta(ge=0, le=1_000)] = 3


class BadOrder(Struct, frozen=True, kw_only=True):
    position: int
    """1 for the first."""
    task_id: str
    problem: str


class Orders(Struct, frozen=True, kw_only=True):
    tasks: Sequence[Task]
    bad: Sequence[BadOrder]


def read_orders(body: bytes, most: int) -> Orders:
    """Every good task of a JSON array, or of lines of JSON, whatever stands beside it.

    Raises InvalidInput for what is neither, or more than that many.
    """
    pieces = elements(body) if body.lstrip()[:1] == b"[" else list(islice(_lines(body), most + 1))
    if pieces is None:
        raise InvalidInput("the body is no JSON array, or cut off")
    if len(pieces) > most:
        raise InvalidInput(f"the body holds more than {most:,} tasks, which is what is taken at once")
    tasks: list[Task] = []
    bad: list[BadOrder] = []
    for position, piece in enumerate(pieces, 1):
        try:
            tasks.append(_order(piece))
        except InvalidInput as error:
            bad.append(BadOrder(position=position, task_id=name_of(piece), problem=str(error)))
    return Orders(tasks=tasks, bad=bad)


def _lines(body: bytes) -> Iterator[bytes]:
    return (line for line in BytesIO(body) if line.strip())


def _order(piece: Piece) -> Task:
    """Unlike a worker, which would lose the task, a gateway refuses what it would have to guess."""
    task = read_task(piece)
    task = structs.replace(task, target=normalized(task.target))
    given = value(piece)
    for name, taken in (("priority", int(task.priority)), ("max_retries", task.max_retries)):
        wish = given.get(name)
        if wish is not None and (type(wish) is not int or wish != taken):
            raise InvalidInput(f"{name} is out of range or no whole number")
    check_deliverable(task)
    return task


def check_deliverable(task: Task) -> None:
    """Raises InvalidInput for a task whose result `read_batch` would refuse for its names."""
    target = task.target
    names = {
        "task_id": task.task_id,
        "platform": task.platform,
        "state": target.state,
        "county": target.county,
        "parcel_id": target.parcel_id,
    }
    for field, name in names.items():
        size = len(name.encode(errors="surrogatepass"))
        if size > MOST_NAME_BYTES:
            raise InvalidInput(f"{field} has {size:,} bytes; at most {MOST_NAME_BYTES} are taken")
        if CONTROL.search(name):
            raise InvalidInput(f"{field} holds control characters")
