"""Mutations of JSON responses. Each returns the mutated page, or None if it does not apply."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

RENAMED = "zorblatt"
Container = dict[str, Any] | list[Any]
Place = tuple[Container, Any]
"""A container, and a key or an index in it."""


def _places(value: Any) -> Iterator[Place]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def _objects(value: Any) -> list[dict[str, Any]]:
    inside = [around[key] for around, key in _places(value)]
    return [one for one in (value, *inside) if isinstance(one, dict) and one]


def _lists(value: Any) -> list[Place]:
    return [(around, key) for around, key in _places(value) if isinstance(around[key], list) and around[key]]


class Response:
    """A decoded response, with the choice of its parts: mostly those with a text of the record."""

    def __init__(self, body: bytes, texts: Sequence[str], chance: Random, parcel_id: str = "") -> None:
        self.parcel_id = parcel_id
        self.value: Any = json.loads(body)
        self.chance = chance
        self._texts = {text.replace(",", "") for text in texts}

    def pick(self, places: Sequence[Place]) -> Place | None:
        if not places:
            return None
        relevant = [place for place in places if self.is_relevant(place[0][place[1]])]
        return self.chance.choice(relevant if relevant and self.chance.random() < 0.8 else places)

    def is_relevant(self, value: Any) -> bool:
        if isinstance(value, dict | list):
            inside = value.values() if isinstance(value, dict) else value
            return any(self.is_relevant(one) for one in inside)
        return str(value).strip() in self._texts

    def scalars(self) -> list[Place]:
        return [(around, key) for around, key in _places(self.value) if not isinstance(around[key], dict | list | None)]

    def named(self) -> list[Place]:
        return [(around, key) for around, key in _places(self.value) if isinstance(around, dict)]

    def items(self) -> list[Place]:
        return [(around, key) for around, key in _places(self.value) if isinstance(around, list)]

    def changed(self, place: Place | None, change: Callable[[Container, Any], None]) -> bytes | None:
        if place is None:
            return None
        change(*place)
        return self.bytes()

    def bytes(self) -> bytes:
        return json.dumps(self.value).encode()


def cut(body: bytes, response: Response) -> bytes | None:
    return body[: int(len(body) * response.chance.uniform(0.05, 0.98))]


def cut_and_closed(body: bytes, response: Response) -> bytes | None:
    """As some clients repair a response: what is open is closed."""
    text = body[: int(len(body) * response.chance.uniform(0.05, 0.98))].decode(errors="ignore")
    for end in range(len(text), 0, -1):
        try:
            return json.dumps(json.loads(text[:end].rstrip().rstrip(",") + _closing(text[:end]))).encode()
        except ValueError:
            continue
    return None


def _closing(text: str) -> str:
    is_text, is_escaped, opened = False, False, []
    for sign in text:
        if is_escaped:
            is_escaped = False
        elif sign == "\\":
            is_escaped = is_text
        elif sign == '"':
            is_text = not is_text
        elif not is_text and sign in "{[":
            opened.append("}" if sign == "{" else "]")
        elif not is_text and sign in "}]" and opened:
            opened.pop()
    return ('"' if is_text else "") + "".join(reversed(opened))


def key_dropped(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.named()), lambda around, key: around.pop(key))


def key_renamed(body: bytes, response: Response) -> bytes | None:
    def rename(around: Any, key: str) -> None:
        around[RENAMED] = around.pop(key)

    return response.changed(response.pick(response.named()), rename)


def keys_renamed(body: bytes, response: Response) -> bytes | None:
    """One name, wherever it occurs."""
    place = response.pick(response.named())
    if place is None:
        return None
    for one in _objects(response.value):
        if place[1] in one:
            one[RENAMED] = one.pop(place[1])
    return response.bytes()


def keys_in_other_case(body: bytes, response: Response) -> bytes | None:
    for one in _objects(response.value):
        for key in list(one):
            one[key.swapcase()] = one.pop(key)
    return response.bytes()


def _set(value: Any) -> Callable[[Any, Any], None]:
    def change(around: Any, key: Any) -> None:
        around[key] = value

    return change


def value_null(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set(None))


def value_emptied(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set(""))


def value_not_available(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set("N/A"))


def value_masked(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set("*****"))


def value_is_loading(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set("Loading..."))


def value_is_object(body: bytes, response: Response) -> bytes | None:
    def wrap(around: Any, key: Any) -> None:
        around[key] = {"value": around[key]}

    return response.changed(response.pick(response.scalars()), wrap)


def numbers_are_texts(body: bytes, response: Response) -> bytes | None:
    for around, key in response.scalars():
        if isinstance(around[key], int | float) and not isinstance(around[key], bool):
            around[key] = str(around[key])
    return response.bytes()


def item_dropped(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.items()), lambda around, key: around.pop(key))


def item_null(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.items()), _set(None))


def item_emptied(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.items()), _set({}))


def item_is_list(body: bytes, response: Response) -> bytes | None:
    def wrap(around: Any, key: Any) -> None:
        around[key] = [around[key]]

    return response.changed(response.pick(response.items()), wrap)


def list_emptied(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(_lists(response.value)), _set([]))


def list_null(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(_lists(response.value)), _set(None))


def list_is_object(body: bytes, response: Response) -> bytes | None:
    def wrap(around: Any, key: Any) -> None:
        around[key] = {"items": around[key]}

    return response.changed(response.pick(_lists(response.value)), wrap)


def list_reversed(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(_lists(response.value)), lambda around, key: around[key].reverse())


def object_is_list(body: bytes, response: Response) -> bytes | None:
    places = [(around, key) for around, key in response.named() if isinstance(around[key], dict) and around[key]]

    def wrap(around: Any, key: Any) -> None:
        around[key] = [around[key]]

    return response.changed(response.pick(places), wrap)


def object_emptied(body: bytes, response: Response) -> bytes | None:
    places = [(around, key) for around, key in response.named() if isinstance(around[key], dict) and around[key]]
    return response.changed(response.pick(places), _set({}))


def wrapped(body: bytes, response: Response) -> bytes | None:
    return json.dumps({"data": response.value}).encode()


def keys_added(body: bytes, response: Response) -> bytes | None:
    for one in _objects(response.value):
        one["surveyor"] = "A. Nonymous"
        one["surveyed"] = 1_234
    return response.bytes()


def keys_reversed(body: bytes, response: Response) -> bytes | None:
    for one in _objects(response.value):
        for key in list(one)[::-1]:
            one[key] = one.pop(key)
    return response.bytes()


def look_alike_added(body: bytes, response: Response) -> bytes | None:
    """The same list of another parcel under another name."""
    place = response.pick(_lists(response.value))
    if place is None or not isinstance(place[0], dict):
        return None
    other = other_digits(json.dumps(place[0][place[1]]), response.chance)
    place[0]["neighboring" + str(place[1])] = json.loads(other)
    return response.bytes()


def look_alike_first(body: bytes, response: Response) -> bytes | None:
    """An item of another parcel before the others of a list."""
    place = response.pick(_lists(response.value))
    if place is None or not isinstance(place[0][place[1]][0], dict):
        return None
    items = place[0][place[1]]
    items.insert(0, json.loads(other_digits(json.dumps(items[0]), response.chance)))
    return response.bytes()


def item_duplicated(body: bytes, response: Response) -> bytes | None:
    def repeat(around: Any, key: Any) -> None:
        around.append(around[key])

    return response.changed(response.pick(response.items()), repeat)


def value_is_list(body: bytes, response: Response) -> bytes | None:
    def wrap(around: Any, key: Any) -> None:
        around[key] = [around[key]]

    return response.changed(response.pick(response.scalars()), wrap)


def value_is_words(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set(response.chance.choice(WORDS)))


def value_is_true(body: bytes, response: Response) -> bytes | None:
    places = [place for place in response.scalars() if not isinstance(place[0][place[1]], bool)]
    return response.changed(response.pick(places), _set(True))


def value_is_error(body: bytes, response: Response) -> bytes | None:
    return response.changed(response.pick(response.scalars()), _set({"error": "timeout"}))


def value_in_markup(body: bytes, response: Response) -> bytes | None:
    def wrap(around: Any, key: Any) -> None:
        around[key] = f"<span>{around[key]}</span>"

    return response.changed(response.pick(response.scalars()), wrap)


def amounts_formatted(body: bytes, response: Response) -> bytes | None:
    return _amounts(response, lambda amount: f"${amount:,.2f}")


def amounts_european(body: bytes, response: Response) -> bytes | None:
    return _amounts(response, lambda amount: f"{amount:,.0f}".replace(",", "."))


def _amounts(response: Response, form: Callable[[float], str]) -> bytes | None:
    """Numbers of thousands and more that are not years, moments or identifiers."""
    for around, key in response.scalars():
        value = around[key]
        is_amount = isinstance(value, int | float) and not isinstance(value, bool) and 3_000 <= value < 10**9
        if is_amount and not _IS_NUMBER.search(str(key)):
            around[key] = form(value)
    return response.bytes()


def moments_in_seconds(body: bytes, response: Response) -> bytes | None:
    count = 0
    for around, key in response.scalars():
        value = around[key]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**11:
            around[key], count = value // 1_000, count + 1
    return response.bytes() if count else None


def error_beside(body: bytes, response: Response) -> bytes | None:
    """The server could not load a part, and says so."""
    place = response.pick(_lists(response.value))
    if place is None or not isinstance(place[0], dict):
        return None
    place[0][place[1]] = []
    response.value = {**response.value, "error": "timeout"} if isinstance(response.value, dict) else response.value
    return response.bytes()


def response_replaced(body: bytes, response: Response) -> bytes | None:
    return response.chance.choice(TROUBLE)


def parcel_number_changed(body: bytes, response: Response) -> bytes | None:
    """The response for another parcel, where the number of this one was asked for."""
    if not response.parcel_id:
        return None
    other = other_digits(response.parcel_id, response.chance)
    return json.dumps(response.value).replace(response.parcel_id, other).encode()


def other_digits(text: str, chance: Random) -> str:
    """Other digits than 0, which could be at the beginning of a number."""
    return "".join(str(chance.randrange(1, 10)) if sign.isdigit() else sign for sign in text)


def look_alike_last(body: bytes, response: Response) -> bytes | None:
    """An item of another parcel behind the others of a list."""
    place = response.pick(_lists(response.value))
    if place is None or not isinstance(place[0][place[1]][0], dict):
        return None
    items = place[0][place[1]]
    items.append(json.loads(other_digits(json.dumps(items[-1]), response.chance)))
    return response.bytes()


def object_is_list_of_two(body: bytes, response: Response) -> bytes | None:
    """One of them is another parcel's."""
    places = [(around, key) for around, key in response.named() if isinstance(around[key], dict) and around[key]]

    def double(around: Any, key: Any) -> None:
        other = json.loads(other_digits(json.dumps(around[key]), response.chance))
        around[key] = response.chance.choice(([around[key], other], [other, around[key]]))

    return response.changed(response.pick(places), double)


def list_paged(body: bytes, response: Response) -> bytes | None:
    """Half of a list, and a member beside it that says so."""
    place = response.pick([(around, key) for around, key in _lists(response.value) if len(around[key]) > 1])
    if place is None or not isinstance(place[0], dict):
        return None
    items = place[0][place[1]]
    total = len(items)
    del items[total // 2 :]
    name, value = response.chance.choice((("hasMore", True), ("total", total), ("nextPage", 2)))
    place[0][name] = value
    return response.bytes()


def values_swapped(body: bytes, response: Response) -> bytes | None:
    """Two members of one object, of different kinds."""
    pairs = [
        (one, first, second)
        for one in _objects(response.value)
        for first in one
        for second in one
        if first < second and "" not in (kinds := {kind_of(one[first]), kind_of(one[second])}) and len(kinds) > 1
    ]
    relevant = [pair for pair in pairs if response.is_relevant(pair[0][pair[1]])]
    if not pairs:
        return None
    one, first, second = response.chance.choice(relevant or pairs)
    one[first], one[second] = one[second], one[first]
    return response.bytes()


def kind(text: str) -> str:
    if not text.strip():
        return ""
    if text.count("/") == 2 or text[:10].count("-") == 2:
        return "date"
    number = text.replace(",", "").replace("$", "").removeprefix("-")
    return (
        "amount" if "." in number and number.replace(".", "").isdigit() else "digits" if number.isdigit() else "words"
    )


def kind_of(value: Any) -> str:
    if isinstance(value, dict | list | bool) or value is None:
        return ""
    own = kind(value if isinstance(value, str) else str(value))
    return "amount" if own == "digits" else own


def texts_escaped(body: bytes, response: Response) -> bytes | None:
    """For HTML: `SMITH &amp; SONS`."""
    places = [place for place in response.scalars() if re.search("[&'<>]", str(place[0][place[1]]))]
    for around, key in places:
        if isinstance(around[key], str):
            around[key] = html.escape(around[key])
    return response.bytes() if places else None


def dates_day_first(body: bytes, response: Response) -> bytes | None:
    places = [place for place in response.scalars() if IS_DATE.fullmatch(str(place[0][place[1]]))]
    if max((int(IS_DATE.fullmatch(str(at[key]))[2]) for at, key in places), default=0) <= 12:  # type: ignore[index]
        return None
    for around, key in places:
        around[key] = IS_DATE.sub(r"\2/\1/\3", str(around[key]))
    return response.bytes()


def number_with_unit(body: bytes, response: Response) -> bytes | None:
    places = [(at, key) for at, key in response.scalars() if isinstance(at[key], int | float) and at[key] > 1]
    place = response.pick([place for place in places if not isinstance(place[0][place[1]], bool)])
    unit = response.chance.choice(("sq ft", "m2", "acres", "thousand", "EUR"))
    return response.changed(place, _set(f"{place[0][place[1]]:,} {unit}") if place else _set(None))


def moments_in_microseconds(body: bytes, response: Response) -> bytes | None:
    count = 0
    for around, key in response.scalars():
        value = around[key]
        if isinstance(value, int) and not isinstance(value, bool) and 10**14 > abs(value) > 10**11:
            around[key], count = value * 1_000, count + 1
    return response.bytes() if count else None


def flags_in_words(body: bytes, response: Response) -> bytes | None:
    yes, no = response.chance.choice((("Y", "N"), (1, 0), ("Yes", "No"), ("1", "0"), ("T", "F")))
    places = [(around, key) for around, key in response.scalars() if isinstance(around[key], bool)]
    for around, key in places:
        around[key] = yes if around[key] else no
    return response.bytes() if places else None


IS_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4}.*)", re.ASCII)
_IS_NUMBER = re.compile(r"id|num|pin|acc|geo|code|zip|key|parcel|folio|page|book|cert|year|certificate", re.IGNORECASE)
WORDS = ("See deed", "Confidential", "Contact the office", "Not disclosed", "pending")
TROUBLE = (
    b'{"error": {"code": 500, "message": "Internal error"}}',
    b'{"message": "Unauthorized"}',
    b'{"Message": "An error has occurred."}',
    b'{"status": "error", "data": null}',
    b"{}",
    b"null",
    b"<html><body><h1>Sign in</h1></body></html>",
)
JsonMutation = Callable[[bytes, Response], bytes | None]
JSON: Sequence[JsonMutation] = (
    *(cut, cut_and_closed, key_dropped, key_renamed, keys_renamed, keys_in_other_case, value_null, value_emptied),
    *(value_not_available, value_masked, value_is_loading, value_is_object, numbers_are_texts, item_dropped, item_null),
    *(item_emptied, item_is_list, list_emptied, list_null, list_is_object, list_reversed, object_is_list),
    *(object_emptied, wrapped, keys_added, keys_reversed, look_alike_added, look_alike_first, item_duplicated),
    *(value_is_list, value_is_words, value_is_true, value_is_error, value_in_markup, amounts_formatted),
    *(amounts_european, moments_in_seconds, error_beside, response_replaced, parcel_number_changed),
    *(look_alike_last, object_is_list_of_two, list_paged, values_swapped, texts_escaped, dates_day_first),
    *(number_with_unit, moments_in_microseconds, flags_in_words),
)
