"""Typer makes values with pydantic, whose import takes longer than most of our commands do. Plain text needs none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PLAIN = (str, Path)


def spare_pydantic(command: Any) -> None:
    """Texts, paths and defaults of the command are taken as they are; typer sees to all else, as it would have.

    Reaches into typer (0.29). Where another version does this otherwise, nothing is gained and nothing lost.
    """
    for below in getattr(command, "commands", {}).values():
        spare_pydantic(below)
    of_typer = command.get_params

    def get_params(context: Any) -> Any:
        parameters = of_typer(context)
        for parameter in parameters:
            if getattr(parameter, "_runtime_param", of_typer) is None:
                parameter._runtime_param = _Plain(parameter.type_descriptor.annotation)
        return parameters

    command.get_params = get_params


class _Plain:
    """What typer asks for a parameter's value."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_several = param.multiple or param.nargs == -1
        if value is None:
            return () if is_several else None
        if self._annotation in _PLAIN and isinstance(value, _PLAIN):
            return self._annotation(value)
        if self._annotation == list[str] and is_several and not isinstance(value, str):
            return list(value)
        if isinstance(self._annotation, type) and type(value) is self._annotation and value == param.default:
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
