"""The county server over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from urllib.parse import urlencode, urlsplit

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Blocked, Page, Retry
from parcelpost.scrapers.html.document import is_shell
from parcelpost.simulator.faults import Faults
from parcelpost.simulator.parcels import World
from parcelpost.simulator.server import CountyServer, serving
from parcelpost.simulator.sites import SITES
from tests.simulator.asking import parcel_page, parsed, records

WORLD = World(seed=3, county="fernhill", size=50)
PARCEL = "/vgsi/inventednh/Parcel.aspx?Pid=7"


class Answer:
    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


class Client:
    """One connection, kept open."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(urlsplit(address).netloc, timeout=30)

    async def ask(
        self,
        target: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        form: dict[str, str] | None = None,
    ) -> Answer:
        return await asyncio.to_thread(self._ask, target, method, dict(headers or {}), form)

    def _ask(self, target: str, method: str, headers: dict[str, str], form: dict[str, str] | None) -> Answer:
        self._connection.request(method, target, urlencode(form) if form else None, headers)
        return Answer(self._connection.getresponse())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def server() -> CountyServer:
    return CountyServer(worlds=dict.fromkeys(SITES, WORLD), faults=Faults(3), clock=ManualClock())


@pytest.fixture
async def client(server: CountyServer) -> AsyncIterator[Client]:
    async with serving(server) as address:
        found = Client(address)
        yield found
        found.close()


async def test_a_parcel_s_page_comes_over_http_as_the_site_writes_it(client: Client) -> None:
    for _ in range(3):  # on one connection
        answer = await client.ask(PARCEL)
        assert answer.status == 200
        assert answer.body == parcel_page("vgsi", WORLD, 7).body


async def test_head_has_the_headers_and_no_body(client: Client) -> None:
    whole, head = await client.ask(PARCEL), await client.ask(PARCEL, "HEAD")
    assert head.body == b""
    assert head.headers["Content-Length"] == str(len(whole.body))
    assert (await client.ask(PARCEL)).body == whole.body


async def test_a_page_that_has_not_changed_is_not_sent_again(client: Client) -> None:
    tag = (await client.ask(PARCEL)).headers["ETag"]
    again = await client.ask(PARCEL, headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert (await client.ask(PARCEL.replace("7", "8"), headers={"If-None-Match": tag})).status == 200


async def test_robots_txt_and_what_is_not_there(client: Client) -> None:
    assert b"User-agent" in (await client.ask("/robots.txt")).body
    assert (await client.ask("/nowhere/at/all")).status == 404
    assert (await client.ask("/vgsi/nowhere")).status == 404


async def test_the_frame_of_grizzly_gis_leads_to_the_record(client: Client) -> None:
    frame = await client.ask("/grizzly_gis/gis/?pin=1")
    assert b'action="/grizzly_gis/gis/recordSearch_2_Results/"' in frame.body
    number = WORLD.at(5).parcel_id
    answer = await client.ask("/grizzly_gis/gis/recordSearch_2_Results/", "POST", form={"bHandoff_PIN": number})
    assert records("grizzly_gis", Page(body=answer.body))[0]["parcel_id"] == number


async def test_realauction_lists_items_only_to_who_brings_the_preview_s_cookie(client: Client) -> None:
    load = "/realauction/index.cfm?zaction=AUCTION&Zmethod=UPDATE&FNC=LOAD&AREA=W&bypassPage=1"
    without = await client.ask(load)
    assert (without.status, without.body) == (200, b"")
    preview = await client.ask("/realauction/index.cfm?zaction=AUCTION&Zmethod=PREVIEW&AUCTIONDATE=09/18/2024")
    cookie = preview.headers["Set-Cookie"].split(";")[0]
    assert b"retHTML" in (await client.ask(load, headers={"Cookie": cookie})).body


async def test_arcgis_is_read_page_by_page(client: Client) -> None:
    layer = "/arcgis/arcgis/rest/services/Parcels/MapServer/0/query?where=1%3D1&f=json&resultRecordCount=20"
    first = await client.ask(f"{layer}&resultOffset=0")
    assert b'"exceededTransferLimit":true' in first.body
    last = await client.ask(f"{layer}&resultOffset=40")
    assert b"exceededTransferLimit" not in last.body
    found = records("arcgis", Page(body=first.body)) + records("arcgis", Page(body=last.body))
    assert [record["parcel_id"] for record in found] == [f"{n:013}" for n in (*range(1, 21), *range(41, 51))]


@pytest.mark.parametrize(("fault", "status"), [("500", 500), ("429", 429), ("challenge", 403)])
async def test_a_fault_is_switched_on_and_off_while_the_server_runs(client: Client, fault: str, status: int) -> None:
    await client.ask("/_control/faults", "POST", form={"name": fault, "rate": "1"})
    answer = await client.ask(PARCEL)
    assert answer.status == status
    assert ("Retry-After" in answer.headers) is (status == 429)
    assert (await client.ask("/_control/faults", "POST", form={"name": fault, "rate": "0"})).body == b"{}"
    assert (await client.ask(PARCEL)).status == 200


async def test_a_challenge_and_a_page_that_is_cut_are_no_records(client: Client, server: CountyServer) -> None:
    server.faults.set("challenge", 1)
    assert isinstance(parsed("vgsi", Page(body=(await client.ask(PARCEL)).body)), Blocked)
    server.faults.set("challenge", 0)
    server.faults.set("truncated", 1)
    assert isinstance(parsed("vgsi", Page(body=(await client.ask(PARCEL)).body)), Retry)


async def test_a_fault_can_strike_chosen_parcels_only(client: Client, server: CountyServer) -> None:
    server.faults.set("500", parcels=["Pid=7"])
    assert (await client.ask(PARCEL)).status == 500
    assert (await client.ask(PARCEL.replace("7", "8"))).status == 200


async def test_a_page_that_is_not_in_the_charset_it_names_is_read_all_the_same(
    client: Client, server: CountyServer
) -> None:
    server.faults.set("charset", 1)
    number = next(parcel.number for parcel in WORLD.all() if "Ñ" in parcel.owners[0])
    answer = await client.ask(f"/vgsi/inventednh/Parcel.aspx?Pid={number}")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Page(body=answer.body, content_type=answer.headers["Content-Type"])
    assert records("vgsi", page)[0]["owner_names"] == list(WORLD.at(number).owners)


async def test_a_slow_answer_waits_and_a_broken_connection_breaks(client: Client, server: CountyServer) -> None:
    server.faults.set("slow", 1)
    assert (await client.ask(PARCEL)).status == 200
    assert server.clock.monotonic() == server.faults.slow_seconds
    server.faults.set("reset", 1)
    with pytest.raises((ConnectionResetError, RemoteDisconnected)):
        await client.ask(PARCEL)


async def test_a_fault_nobody_knows_is_refused(client: Client) -> None:
    assert (await client.ask("/_control/faults", "POST", form={"name": "lightning", "rate": "1"})).status == 400
    assert (await client.ask("/_control/faults", "POST", form={"name": "500", "rate": "many"})).status == 400


async def test_a_page_that_a_script_writes_is_a_shell_to_all_others(client: Client, server: CountyServer) -> None:
    server.faults.set("script", 1.0)
    whole = parcel_page("vgsi", WORLD, 7).body
    shell = await client.ask(PARCEL)
    assert is_shell(Page(body=shell.body, content_type="text/html; charset=utf-8"))
    assert not is_shell(Page(body=whole, content_type="text/html; charset=utf-8"))
    assert (await client.ask(PARCEL, headers={"X-Written-By-Script": "1"})).body == whole
    frame = await client.ask("/grizzly_gis/gis/?pin=1")
    assert b"parentForm" in frame.body
    record = await client.ask("/grizzly_gis/gis/recordSearch_2_Results/", "POST", form={"bHandoff_PIN": "1</script>"})
    assert b"fetch(" in record.body
    assert record.body.count(b"</script>") == 1


async def test_terms_are_to_be_accepted_first(client: Client, server: CountyServer) -> None:
    server.faults.set("terms", 1.0)
    sent_away = await client.ask(PARCEL)
    assert sent_away.status == 302
    place = sent_away.headers["Location"]
    assert b"I accept" in (await client.ask(place)).body
    accepted = await client.ask(place, "POST")
    assert (accepted.status, accepted.headers["Location"]) == (303, PARCEL)
    cookie = accepted.headers["Set-Cookie"].split(";")[0]
    assert (await client.ask(PARCEL, headers={"Cookie": cookie})).status == 200
    elsewhere = await client.ask("/vgsi/Disclaimer?back=//elsewhere.example.org/", "POST")
    assert elsewhere.headers["Location"] == "/vgsi/"
