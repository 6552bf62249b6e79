"""Parts of rendering that need no browser: what is blocked, what is told, what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.model import Page, Site
from parcelpost.scrapers.browser import processes
from parcelpost.scrapers.browser.page_watch import Navigation, PageLog, is_blocked, is_tracker
from parcelpost.scrapers.browser.profiles import CookieJars, is_profile_name, load_profile
from parcelpost.scrapers.browser.renderer import RenderRequest
from parcelpost.scrapers.counties import parse_counties
from parcelpost.scrapers.fetch.errors import BrowserUnavailable, CannotFetch, RetryLater, SiteBlocked
from parcelpost.scrapers.fetch.exchange import FetchGuard
from parcelpost.scrapers.html.document import is_shell
from parcelpost.scrapers.platform import Fill

ADAMS, BAKER = Site("vgsi", "CT", "adams"), Site("vgsi", "CT", "baker")
HTML = "text/html; charset=utf-8"
DAMAGED = (
    '{"cookies": [{"value": "1", "domain": "x.org"}]}',
    '{"cookies": [{"name": "a", "value": "1"}]}',
    '{"origins": [{"origin": "nonsense"}]}',
    '{"origins": [{"origin": "https://x.org:99999"}]}',
)


def test_trackers_are_known_with_their_subdomains() -> None:
    assert is_tracker("www.google-analytics.com")
    assert is_tracker("google-analytics.com")
    assert not is_tracker("not-google-analytics.com")
    assert not is_tracker("county.example.org")
    assert not is_tracker("com")


def test_what_is_not_looked_at_is_blocked() -> None:
    everything = ("image", "font", "media", "tracker")
    assert is_blocked("https://c.example.org/a.png", "image", "c.example.org", everything)
    assert not is_blocked("https://c.example.org/a.png", "image", "c.example.org", everything[1:])
    assert not is_blocked("https://c.example.org/a.js", "script", "c.example.org", everything)
    assert is_blocked("https://stats.wp.com/a.js", "script", "c.example.org", everything)
    assert not is_blocked("https://stats.wp.com/a.js", "script", "stats.wp.com", everything), "its own page"
    assert not is_blocked("https://[oops/", "script", "c.example.org", everything)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("GET /a?token=abc&page=2", "GET /a?token=***&page=2"),
        ("GET /a?access_token=abc%20d#x", "GET /a?access_token=***"),
        ('{"password": "hunter2", "parcel": 7}', '{"password": "***", "parcel": 7}'),
        ("Cookie: a=1; b=2", "Cookie: ***"),
        ("authorization: Basic abc", "authorization: ***"),
        ("sent Bearer abcdefghij.k", "sent Bearer ***"),
        ("http://me:pw@county.example.org/", "http://***@county.example.org/"),
        ("jwt eyJhbGciOiJI.eyJzdWIi.c2ln", "jwt ***"),
        ("parcel=7-1 is the session's", "parcel=7-1 is the session's"),
    ],
)
def test_no_secret_is_in_the_log(line: str, told: str) -> None:
    log = PageLog()
    log.add("x", line)
    assert log.text() == f"x: {told}\n"


def test_a_log_is_short_whatever_a_page_says() -> None:
    log = PageLog()
    for number in range(10_000):
        log.add("console", f"{number} " + ("x" if number % 2 else "//token") * 10_000)
    text = log.text()
    assert len(text) < 200_000
    assert "console: 1 x" in text
    assert "console: 9999 x" in text
    assert "(9700 lines omitted)" in text


def test_given_secrets_are_taken_out_wherever_they_stand() -> None:
    log = PageLog()
    log.secrets += ["s3cretvalue", "ok", ""]
    log.add("console", "it is s3cretvalue, and ok")
    assert log.text() == "console: it is ***, and ok\n"


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a.json", "-a", "a\n", "ä", "a" * 65])
def test_what_is_no_name_of_a_profile(name: str, tmp_path: Path) -> None:
    assert not is_profile_name(name)
    with pytest.raises(BrowserUnavailable):
        load_profile(tmp_path, name)
    entry = '[[county]]\nplatform = "vgsi"\nstate = "CT"\ncounty = "x"\nsite = "https://x.org"\n'
    entry += f"profile = {json.dumps(name)}"
    if name:
        with pytest.raises(InvalidSettings, match="profile must be"):
            parse_counties("test", entry)
    else:
        assert parse_counties("test", entry)[0].profile == ""


def test_a_profile_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("[1, 2")
    (tmp_path / "large.json").write_bytes(b" " * (5 * 1024**2))
    (tmp_path / "odd.json").write_text('{"cookies": [{"name": "a", "value": "1", "domain": ""}]}')
    (tmp_path / "good.json").write_text('{"cookies": [{"name": "a", "value": "1", "domain": "x.org", "more": 1}]}')
    (cookie,) = load_profile(tmp_path, "good")["cookies"]
    assert (cookie["name"], cookie["domain"], cookie["path"], cookie["expires"]) == ("a", "x.org", "/", -1)
    for number, damaged in enumerate(DAMAGED):
        (tmp_path / f"damaged{number}.json").write_text(damaged)
    reasons = {"missing": "no such file", "broken": "cannot be read", "large": "larger than", "odd": "cannot be read"}
    reasons |= {f"damaged{number}": "cannot be read" for number in range(len(DAMAGED))}
    for name, why in reasons.items():
        with pytest.raises(BrowserUnavailable, match=why) as waits:
            load_profile(tmp_path, name)
        assert f"--profile {name}" in waits.value.remedy


def test_a_site_s_own_cookies_are_newer_than_a_profile_s() -> None:
    kept = CookieJars()
    old, new = (
        {"name": "a", "domain": "x", "path": "/", "value": "1"},
        {"name": "a", "domain": "x", "path": "/", "value": "2"},
    )
    other = {"name": "b", "domain": "x", "path": "/", "value": "3"}
    kept.keep(ADAMS, [new])
    state = {"cookies": [old, other], "origins": [{"origin": "https://x"}]}
    assert kept.added_to(state, ADAMS) == {"cookies": [other, new], "origins": [{"origin": "https://x"}]}
    assert kept.added_to(state, BAKER) == state
    kept.forget(ADAMS)
    assert kept.added_to({}, ADAMS) == {"cookies": [], "origins": []}


def test_a_rendered_page_is_kept_by_what_was_asked_of_it() -> None:
    url = httpx2.URL("https://c.example.org/a?b=1")
    keys = {
        RenderRequest(url=url).key,
        RenderRequest(url=url, until="#a").key,
        RenderRequest(url=url, profile="me").key,
        RenderRequest(url=url, steps=(Fill("#a", "1"),)).key,
        RenderRequest(url=url, steps=(Fill("#a", "2"),)).key,
    }
    assert len(keys) == 5
    assert all(key.startswith(f"{url}#rendered-") for key in keys)


@pytest.mark.parametrize(
    ("body", "shell"),
    [
        (b"<html><body><div id=root></div><script src=/app.js></script></body></html>", True),
        (b"<html><noscript>" + b"You need JavaScript. " * 50 + b"</noscript><script>x()</script></html>", True),
        (b"<html><body><p>No records found.</p></body></html>", False),
        (b"<html><body><script>x()</script>" + b"<p>Owner: DOE ANN</p>" * 40 + b"</body></html>", False),
        (b"", False),
        (b'{"folio": 1}', False),
    ],
)
def test_a_shell_is_known_by_its_scripts_and_by_saying_nothing(body: bytes, shell: bool) -> None:
    assert is_shell(Page(body=body, content_type=HTML)) == shell


def test_a_navigation_ends_where_it_leads_astray() -> None:
    def navigation() -> Navigation:
        allows = lambda url: "private" not in url.path  # noqa: E731 - short
        return Navigation(httpx2.URL("https://c.example.org/a"), FetchGuard(), allows, 3)

    for place, failure in (
        ("https://c.example.org/Login", SiteBlocked),
        ("https://c.example.org/private/1", CannotFetch),
        ("http://10.0.0.1/", CannotFetch),
        ("https://c.example.org/SessionExpired", RetryLater),
    ):
        one = navigation()
        one.request("https://c.example.org/a")
        one.respond(200, {})
        one.request(place)
        assert isinstance(one.failure, failure)
        assert one.is_over
    one = navigation()
    for number in range(4):
        one.request(f"https://c.example.org/{number}")
    assert isinstance(one.failure, RetryLater)


def test_what_is_of_a_page_s_site() -> None:
    one = Navigation(httpx2.URL("https://www.county.example.org/a"), FetchGuard(), lambda _: True, 3)
    assert one.is_same_site("https://www.county.example.org:8443/b")
    assert one.is_same_site("https://maps.county.example.org/")
    assert not one.is_same_site("https://elsewhere.example.org/")
    assert not one.is_same_site("data:text/html,x")


def test_after_an_error_nothing_counts() -> None:
    one = Navigation(httpx2.URL("https://c.example.org/a"), FetchGuard(), lambda _: True, 3)
    one.request("https://c.example.org/a")
    assert one.is_expected("https://c.example.org/a#part")
    assert not one.is_expected("https://c.example.org/file")
    one.respond(403, {"x": "1"})
    one.respond(200, {})
    assert (one.status, one.headers, one.is_over) == (403, {"x": "1"}, True)


def a_profile(tmp_path: Path, name: str, link: Path) -> Path:
    profile = tmp_path / name
    profile.mkdir()
    (profile / "SingletonSocket").symlink_to(link / "SingletonSocket")
    return profile


def test_the_profile_and_chromiums_own_folder_are_removed(tmp_path: Path) -> None:
    sockets = tmp_path / "org.chromium.Chromium.abc123"
    sockets.mkdir()
    profile = a_profile(tmp_path, "playwright_chromiumdev_profile-abc", sockets)
    assert processes.profile_folders(str(profile)) == [profile, sockets]
    processes.remove_folders(processes.profile_folders(str(profile)))
    assert list(tmp_path.iterdir()) == []


def test_nobody_elses_folder_is_meant(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    assert processes.profile_folders("") == []
    assert processes.profile_folders(str(a_profile(tmp_path, "chromium", mine))) == []
    link = tmp_path / "playwright_chromiumdev_profile-link"
    link.symlink_to(mine)
    assert processes.profile_folders(str(link)) == []
    profile = a_profile(tmp_path, "playwright_chromiumdev_profile-abc", mine)
    assert processes.profile_folders(str(profile)) == [profile]
