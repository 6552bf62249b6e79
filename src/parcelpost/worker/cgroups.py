"""The control groups this process is in: on Linux, what limits a container or a service is written there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

ROOT = Path("/")


class Group(Struct, frozen=True):
    folder: Path
    version: Literal[1, 2]


class _Mount(Struct, frozen=True):
    root: str
    """Which group stands at `point`: not the topmost one where a container sees only its own."""
    point: str
    kind: str
    controllers: Sequence[str]


def groups(controller: str, root: Path = ROOT) -> Sequence[Group]:
    """The process's own first, then all above it that can be seen. Empty where there are none.

    `root` is the folder in which `proc` and `sys` are.
    """
    own = dict(_own(_text(root / "proc/self/cgroup")))
    version: Literal[1, 2] = 1 if controller in own else 2
    path = own.get(controller) or own.get("", "")
    for mount in _mounts(_text(root / "proc/self/mountinfo")):
        is_it = mount.kind == "cgroup2" if version == 2 else mount.kind == "cgroup" and controller in mount.controllers
        if path and is_it:
            top = root / mount.point.lstrip("/")
            return [Group(folder, version) for folder in _upwards(top, _below(mount.root, path))]
    return ()


def numbers(file: Path) -> Sequence[int | None]:
    """The words of a line; None for one that is no whole number, as `max` or -1. Empty if there is no such file."""
    return [int(word) if word.isascii() and word.isdigit() else None for word in _text(file).split()]


def number(file: Path) -> int | None:
    """The first word; None if it is no whole number or there is no such file."""
    return next(iter(numbers(file)), None)


def table(file: Path) -> dict[str, int]:
    """Lines of a name and a number; a colon and a unit are passed over. Empty if there is no such file."""
    lines = (line.split() for line in _text(file).splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a group may be removed, or hidden from us, at any time
        return ""


def _own(text: str) -> Iterator[tuple[str, str]]:
    """Controller -> the group's path; of version 2 the controller is ''."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield from ((name, path) for name in controllers.split(","))


def _mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        where, _, what = line.partition(" - ")
        fields, of_system = where.split(" "), what.split(" ")
        if len(fields) > 4 and len(of_system) > 2:
            yield _Mount(fields[3], fields[4], of_system[0], of_system[2].split(","))


def _below(top: str, path: str) -> Sequence[str]:
    """The names from the group `top` down to the one at `path`; none if it is not below: then `top` is all we see."""
    steps, above = (_steps(one) for one in (path, top))
    return steps[len(above) :] if steps[: len(above)] == above and ".." not in steps else ()


def _steps(path: str) -> Sequence[str]:
    return [step for step in path.split("/") if step]


def _upwards(top: Path, steps: Sequence[str]) -> Iterator[Path]:
    for count in range(len(steps), -1, -1):
        yield top.joinpath(*steps[:count])
