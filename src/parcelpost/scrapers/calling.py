"""Calls a function with what its parameters' names ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from parcelpost.model import Json, Target, Task

FETCHER = "fetcher"
_FILLED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Missing(Exception):
    """The function wants what this task does not say."""


class Fields(dict[str, Json]):
    """A target for code that knows nothing of ours: `target["parcel_id"]`, `target.get("url")`, `target.parcel_id`."""

    def __init__(self, target: Target) -> None:
        own = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county, "url": target.url}
        super().__init__({**target.extra, **own})
        self.extra = target.extra

    def __getattr__(self, name: str) -> Json:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the target has no {name}") from None


class Call:
    """A function, and how it is called for a task. Raises Missing.

    A parameter is filled by its annotation (`Task`, `Target`), else by its name, else from the target's `extra`; one
    that none of these fills keeps its default, and a single one without a default gets the parcel's number.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self._parameters = _parameters(function)

    @property
    def is_async(self) -> bool:
        """Of a decorated function, what the innermost one is."""
        function = inspect.unwrap(self._function)
        called = getattr(function, "__call__", None)  # noqa: B004 - whether it is, not whether it has one
        kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        return any(is_kind(one) for is_kind in kinds for one in (function, called))

    def asks_for(self, name: str) -> bool:
        return any(one.name == name for one in self._parameters)

    @property
    def first_annotation(self) -> str:
        """Of what it is given; '' where it does not say."""
        return _annotation(self._parameters[0]) if self._parameters else ""

    def __call__(self, task: Task, *given: object, fetcher: object = None) -> object:
        """`given` are its first arguments, whatever they are called. `fetcher`: None where nothing is fetched."""
        wanted = self._parameters[len(given) :]
        required = [one for one in wanted if one.default is Parameter.empty]
        known = {**_known(task), **({FETCHER: fetcher} if fetcher is not None else {})}
        positional, by_name = list(given), {}
        for parameter in wanted:
            filled, value = _value(parameter, task, known)
            if not filled and parameter.default is not Parameter.empty:
                continue
            if not filled and parameter.name == FETCHER:
                raise Missing(f"{self.name} wants a fetcher, and nothing is fetched here")
            if not filled and (given or len(required) > 1):
                raise Missing(f"{self.name} wants {parameter.name}, which the task's target does not have")
            argument = value if filled else task.target.parcel_id
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                positional.append(argument)
            else:
                by_name[parameter.name] = argument
        return self._function(*positional, **by_name)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C do not tell
        return [Parameter("parcel_id", Parameter.POSITIONAL_ONLY)]
    return [one for one in found if one.kind in _FILLED]


def _known(task: Task) -> Mapping[str, object]:
    target = task.target
    return {
        "task": task,
        "task_id": task.task_id,
        "platform": task.platform,
        "target": target,
        "parcel_id": target.parcel_id,
        "parcel": target.parcel_id,
        "id": target.parcel_id,
        "state": target.state,
        "county": target.county,
        "url": target.url,
        "extra": target.extra,
    }


def _value(parameter: Parameter, task: Task, known: Mapping[str, object]) -> tuple[bool, object]:
    annotation = _annotation(parameter)
    if annotation in ("Task", "Target"):
        return True, task if annotation == "Task" else task.target
    if parameter.name == "target":
        return True, task.target.parcel_id if annotation == "str" else Fields(task.target)
    if parameter.name in known:
        return True, known[parameter.name]
    return parameter.name in task.target.extra, task.target.extra.get(parameter.name)


def _annotation(parameter: Parameter) -> str:
    """`Target` for Target, model.Target and 'model.Target': annotations may be text that nothing resolves."""
    found = parameter.annotation
    text = found if isinstance(found, str) else getattr(found, "__name__", "")
    return str(text).strip("\"' ").rpartition(".")[2]
