from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from parcelpost.model import Page
from parcelpost.scrapers.html.document import MAX_BYTES, Document, beside, label, lines_of, text_of
from parcelpost.scrapers.html.encoding import decode


def document(html: str) -> Document:
    found = Document.of(Page(body=html.encode()))
    assert found is not None
    return found


def value(html: str, name: str) -> str | None:
    page = document(html)
    elements = page.labelled(name)
    piece = beside(elements[0], page) if elements else None
    return piece.text if piece else None


@pytest.mark.parametrize(
    "html",
    [
        "<table><tr><td>Owner:</td><td>ANN LEE</td></tr></table>",
        "<table><tr><th><span id=x>Owner</span></th><td><span>ANN LEE</span></td></tr></table>",
        "<dl><dt>Owner</dt><dd>ANN LEE</dd></dl>",
        "<p><b>owner:</b> ANN LEE</p>",
        "<label for=o>Owner</label><p><span id=o>ANN LEE</span></p>",
        "<div><span>Owner *</span><span>ANN LEE</span></div>",
        "<table><tr><td>Owner<font>*</font></td><td>ANN LEE</td></tr></table>",
    ],
)
def test_what_stands_beside_a_label_is_found_however_the_page_is_built(html: str) -> None:
    assert value(html, "Owner") == "ANN LEE"


def test_an_empty_cell_beside_a_label_is_the_answer() -> None:
    html = "<table><tr><td>Site</td><td></td><td>Owner</td><td>ANN</td></tr></table>"
    assert value(html, "Site") == ""


def test_text_is_broken_where_the_page_breaks_it() -> None:
    page = document("<td><b>ANN LEE<br>BO LEE</b><br>1 ELM ST<div>OSLO, NH 03768</div></td>")
    assert lines_of(page.root) == ["ANN LEE", "BO LEE", "1 ELM ST", "OSLO, NH 03768"]


def test_controls_are_no_text_however_they_are_written() -> None:
    page = document("<table><tr><td>Owner&#1;</td><td>ANN\x01LEE<br>BO\uffffLEE&#2;</td></tr></table>")
    assert lines_of(page.root) == ["Owner", "ANN LEE", "BO LEE"]


def test_text_of_neighbours_is_not_joined_across_blocks_and_is_within_a_line() -> None:
    page = document("<div>1<div>2</div>3<p>4</p><table><tr><td>5<td>6</table>7</div><b>8</b>9")
    assert text_of(page.root) == "1 2 3 4 5 6 7 89"


def test_scripts_are_no_text_but_can_be_asked() -> None:
    page = document("<body>a<script>var owner = 1</script><style>b{}</style></body>")
    assert lines_of(page.root) == ["a"]
    assert page.scripts == ["var owner = 1"]


def test_an_element_is_found_by_the_end_of_its_id() -> None:
    page = document("<span id='ctlBodyPane_ctl07_ctl01_lblParcelID'>1-2</span>")
    assert [one.text for one in page.by_id_end("lblparcelid")] == ["1-2"]


@pytest.mark.parametrize("body", [b"", b"   ", b"\0\0", b"x" * (MAX_BYTES + 1)], ids=["empty", "blank", "NULs", "huge"])
def test_what_is_no_page_is_none(body: bytes) -> None:
    assert Document.of(Page(body=body)) is None


def test_a_page_nested_ten_thousand_deep_is_read_or_refused() -> None:
    deep = "<div>" * 10_000 + "<b>Owner</b> ANN" + "</div>" * 10_000
    found = Document.of(Page(body=deep.encode()))
    assert found is None or lines_of(found.root) is not None


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("é".encode(), "text/html; charset=iso-8859-1", "é"),
        ("é".encode("latin-1"), "text/html; charset=utf-8", "é"),
        ("“é”".encode("cp1252"), "text/html", "“é”"),
        (b"<meta charset=shift_jis>\x83e", "text/html", "<meta charset=shift_jis>テ"),
        ("\ufeffé".encode("utf-16"), "text/html", "\ufeffé"),
        (b"\xe9", "text/html; charset=no-such-thing", "é"),
        (b"\xe9", "text/html; charset=rot13", "é"),
        (b"\xe9", "text/html; charset=idna", "é"),
    ],
)
def test_a_page_is_decoded_as_it_is_not_as_it_says(body: bytes, content_type: str, text: str) -> None:
    assert decode(body, content_type) == text


@pytest.mark.parametrize(
    "html",
    [
        "<div><span>Zoning</span><span></span></div><div><span>Subdivision</span><span>ELM ACRES</span></div>",
        "<div><span>Zoning</span><span></span><span>Subdivision</span><span>ELM ACRES</span></div>",
        "<div><b>Zoning</b>: <span> </span></div><div><b>Subdivision</b>: <span>ELM ACRES</span></div>",
        "<dl><dt>Zoning</dt><dt>Subdivision</dt><dd>ELM ACRES</dd></dl>",
        "<dl><dt>Zoning</dt></dl><dl><dt>Subdivision</dt><dd>ELM ACRES</dd></dl>",
        "<dl><dt>Zoning</dt><dd></dd><dt>Subdivision</dt><dd>ELM ACRES</dd></dl>",
    ],
)
def test_a_value_that_is_empty_is_not_taken_from_the_next_label(html: str) -> None:
    assert not value(html, "Zoning")
    assert value(html, "Subdivision") == "ELM ACRES"


@pytest.mark.parametrize(
    "html",
    [
        "<b>Owner</b><i class=icon></i><span>ANN LEE</span>",
        "<b>Owner</b><span>:</span><span>ANN LEE</span>",
        "<table><tr><td><b>Owner</b><span class=hint></span></td><td>ANN LEE</td></tr></table>",
        "<table><tr><td><div><b>Owner</b><span class=hint></span></div></td><td>ANN LEE</td></tr></table>",
        "<div><div>Owner</div></div><div>ANN LEE</div>",
    ],
)
def test_what_only_adorns_a_label_is_not_its_value(html: str) -> None:
    assert value(html, "Owner") == "ANN LEE"


def test_a_heading_of_a_column_labels_nothing_beside_it() -> None:
    html = (
        "<table><tr><th>Use Code</th><th>Description</th><th>Zone</th></tr><tr><td>0100</td><td>HOUSE</td></tr></table>"
    )
    assert value(html, "Use Code") is None
    assert value("<table><tr><th>Use Code</th><td>0100</td><th>Zone</th><td>RD</td></tr></table>", "Use Code") == "0100"


@pytest.mark.parametrize(
    "html",
    [
        "<table><tr><td>Owner</td><td>Site</td></tr><tr><td>ANN LEE</td><td>1 ELM ST</td></tr></table>",
        "<table><tr><td><b>Owner</b></td><td><b>SITE:</b></td></tr><tr><td>ANN LEE</td><td>1 ELM ST</td></tr></table>",
        "<table><tr><td>Owner</td><td>Remark 2</td><td>Acres</td><td>Site</td></tr><tr><td>ANN LEE</td></tr></table>",
        "<table><tr><td>Acres</td><td>Owner</td><td>Some Remark</td></tr><tr><td>1.5</td><td>ANN LEE</td></tr></table>",
        "<div><b>Owner</b></div><div><b>Some Remark</b></div><div>ANN LEE</div>",
        "<div><span>Owner</span></div><div><span>Site Address</span></div><div>ANN LEE</div>",
        "<p><strong>Owner</strong></p><p><strong>Deed Date</strong></p>",
        "<ul><li><b>Owner</b></li><li><b>Site</b> 1 ELM ST</li></ul>",
    ],
)
def test_what_stands_in_the_place_of_a_value_and_is_a_label_is_none(html: str) -> None:
    assert value(html, "Owner") is None


@pytest.mark.parametrize(
    "html",
    [
        "<table><tr><td>Owner</td><td>ANN LEE</td><td>Site</td><td>1 ELM ST</td></tr></table>",
        "<table><tr><td><b>Owner</b></td><td><b>ANN LEE</b></td></tr><tr><td><b>Site</b></td></tr></table>",
        "<div><b>Owner</b></div><div>ANN <b>LEE</b></div>",
        "<table><tr><td>Zoning</td><td></td><td>Owner</td><td>ANN LEE</td></tr></table>",
    ],
)
def test_a_value_is_one_beside_other_labels_and_in_bold(html: str) -> None:
    assert value(html, "Owner") == "ANN LEE"


def test_a_word_that_is_a_label_here_and_a_value_there_is_a_heading_beside_its_like() -> None:
    assert value("<table><tr><td>Tax District</td><td>COUNTY</td></tr></table>", "Tax District") == "COUNTY"
    assert value("<table><tr><td>City</td><td>State</td><td>Zip</td></tr></table>", "City") is None


def _steps(html: str) -> int:
    """What it takes to look beside every label of the page: lines run, whatever the machine's speed."""
    page, count = document(html), 0

    def note(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal count
        count += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        for element in page.labelled("PID"):
            beside(element, page)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "one", ["<label for=zz>PID</label><p></p>", "<b>PID</b><br>", "<td>PID<td>", "<b>PID</b><i></i><br>"]
)
def test_twice_as_many_labels_take_no_more_than_twice_the_work(one: str) -> None:
    assert _steps(one * 800) < 3 * _steps(one * 400)


def test_a_text_too_long_for_a_label_is_none_and_blanks_do_not_count() -> None:
    assert label("Owner " * 100) == ""
    assert label(f"{' ' * 400}Owner:{' ' * 400}") == "owner"


def test_beside_a_text_too_long_for_a_label_is_nothing_of_what_is_around() -> None:
    html = f"<div><div>Owner <p>{'long ' * 100}</p></div><br>other</div><div>ANN LEE</div>"
    assert value(html, "Owner") is None
