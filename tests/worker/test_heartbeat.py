"""The heartbeat: it beats whatever happens, tells how the worker is, and obeys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from parcelpost import __version__
from parcelpost.clock import iso
from parcelpost.events import CommandReceived, UpstreamOffline, UpstreamOnline
from parcelpost.model import Broken, NotFound, Site, Target, Task
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.html.selectors import Css
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.settings import Settings
from parcelpost.settings.schema import HeartbeatSettings, WorkerSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.backoff import HEARTBEAT, Offline
from parcelpost.worker.collector import Collector
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.heartbeat import HeartbeatLoop
from parcelpost.worker.identity import process_name
from parcelpost.worker.learning import Learning
from parcelpost.worker.resources import Resources
from parcelpost.worker.sync import SyncManager
from tests import traps
from tests.worker.rig import Rig, a_context


class Scene:
    def __init__(self, rig: Rig, lpm: LocalPersistenceManager | None = None, name: str = "worker-1") -> None:
        self.control = Control()
        factory = ScraperFactory(rig.clock, installed=list)
        for platform in ("qpublic", "vgsi"):
            factory.register(platform, lambda _: NotFound("no"))
        self.context = a_context(
            lpm or rig.lpm,
            rig.client,
            rig.clock,
            rig.events.append,
            Settings(heartbeat=HeartbeatSettings(seconds=30), worker=WorkerSettings(platforms=("echo", "vgsi"))),
            factory=factory,
            control=self.control,
            name=name,
        )
        self.woken: list[str] = []
        self.control.wake = self.woken.append
        self.learning = Learning(self.context, Ranking())
        self.executor = Executor(self.context, self.learning, SiteAvailability())
        self.resources = Resources(self.context, browsers=None, most_browsers=0)
        self.sync = SyncManager(self.context)
        self.heartbeat = HeartbeatLoop(
            self.context, self.executor, Collector(self.context), self.sync, self.resources, self.learning
        )

    @property
    def offline(self) -> Offline | None:
        return self.context.upstream_state.offline(HEARTBEAT)


@pytest.fixture
def scene(rig: Rig) -> Scene:
    return Scene(rig)


async def test_it_tells_how_the_worker_is(scene: Scene, rig: Rig) -> None:
    await rig.save("t1", "t2")
    await rig.lpm.give_up(await rig.claim("t3"), "no")
    scene.executor.running.claims[1] = await rig.claim("t4")
    scene.control.usage = await rig.lpm.maintenance.usage()
    scene.control.paused = True
    assert await scene.heartbeat.step() == 30
    (beat,) = rig.gateway.beats
    assert beat["active_tasks"] == 1
    assert beat["platforms"] == ["echo", "vgsi"]
    assert (beat["completed_last_minute"], beat["failed_last_minute"]) == (2, 1)
    assert (beat["queue"]["completed"], beat["queue"]["failed"], beat["queue"]["unsynced"]) == (2, 1, 3)
    assert (beat["version"], beat["paused"]) == (__version__, True)
    assert beat["disk_free_bytes"] == scene.control.usage.disk_free
    assert 0 <= beat["cpu_percent"] <= 100
    assert 0 < beat["memory_percent"] <= 100


async def test_a_task_that_waits_keeps_its_lease_as_long_as_the_gateway_extends_it(scene: Scene, rig: Rig) -> None:
    now = rig.clock.now()
    target = Target(parcel_id="1", state="CT", county="hartford")
    lease = now + timedelta(minutes=1)
    await rig.lpm.add_task(Task(task_id="t1", platform="echo", target=target, lease_expires_at=lease))
    answer = {
        "acknowledged": True,
        "lease_expires_at": iso(now + timedelta(hours=1)),
        "leases_since": "2000-01-01T00:00:00Z",
    }
    rig.gateway.play("heartbeat", traps.answer(answer))
    await scene.heartbeat.step()
    rig.clock.advance(3_599)
    assert await rig.lpm.expire_tasks() == 0
    rig.clock.advance(2)
    assert await rig.lpm.expire_tasks() == 1


async def test_it_names_the_platforms_that_are_left_alone_until_they_are_not(scene: Scene, rig: Rig) -> None:
    for platform in ("vgsi", "echo"):
        await rig.lpm.pause_platform(platform, rig.clock.now() + timedelta(seconds=300), "captcha")
    await rig.lpm.pause_platform("qpublic", reason="by an operator, until resumed")
    site, until = Site("beacon", "CT", "hartford"), rig.clock.now() + timedelta(seconds=600)
    await rig.lpm.pause_platform("beacon", until, "captcha", [site])
    for _ in range(3):
        await scene.heartbeat.step()
        rig.clock.advance(301)
    whole = [{"platform": name, "state": "", "county": ""} for name in ("echo", "vgsi")]
    county = {"platform": "beacon", "state": "CT", "county": "hartford"}
    assert [beat["blocked"] for beat in rig.gateway.beats] == [[*whole, county], [county], []]


async def test_it_names_the_fields_that_sites_no_longer_show(scene: Scene, rig: Rig) -> None:
    scene.learning.broken = [
        Broken(
            platform="vgsi",
            state="NH",
            county="grafton",
            field="owner",
            success_rate=0.1,
            used_to=1.0,
            failing=("css #o",),
            example="t1",
        )
    ]
    await scene.heartbeat.step()
    (told,) = rig.gateway.beats[0]["broken"]
    assert (told["county"], told["field"], told["failing"], told["example"]) == ("grafton", "owner", ["css #o"], "t1")


COMMANDS: list[tuple[str, Callable[[Scene], bool]]] = [
    ("pause", lambda scene: scene.control.paused),
    ("drain", lambda scene: scene.control.leaving.is_set() and not scene.control.stopping.is_set()),
    ("stop", lambda scene: scene.control.stopping.is_set()),
    ("sync-now", lambda scene: "sync" in scene.woken),
    ("Platforms:echo, qpublic,nonsense", lambda scene: scene.control.platforms == frozenset({"echo", "qpublic"})),
]


@pytest.mark.parametrize(("command", "is_obeyed"), COMMANDS)
async def test_it_obeys(scene: Scene, rig: Rig, command: str, is_obeyed: Callable[[Scene], bool]) -> None:
    rig.gateway.commands = [command]
    await scene.heartbeat.step()
    assert is_obeyed(scene)
    assert rig.seen(CommandReceived) == [CommandReceived(command=command, known=True)]


async def test_resume_ends_a_pause_and_an_empty_list_of_platforms_means_all(scene: Scene, rig: Rig) -> None:
    rig.gateway.commands = ["pause", "platforms:echo"]
    await scene.heartbeat.step()
    rig.gateway.commands = ["resume", "platforms:"]
    await scene.heartbeat.step()
    assert not scene.control.paused
    assert scene.control.platforms is None


@pytest.mark.parametrize("command", ["reboot", "", "pause now", "platforms", "platforms:nonsense", "drain:", "x" * 500])
async def test_an_unknown_command_is_reported_and_ignored(scene: Scene, rig: Rig, command: str) -> None:
    rig.gateway.commands = [command]
    await scene.heartbeat.step()
    assert scene.control.may_start
    assert scene.control.platforms is None
    assert rig.seen(CommandReceived) == [CommandReceived(command=command, known=False)] * bool(command)


async def test_it_knows_since_when_the_worker_is_paused(scene: Scene, rig: Rig) -> None:
    await scene.heartbeat.step()
    assert scene.heartbeat.commands.paused_since is None
    rig.gateway.commands = ["pause"]
    await scene.heartbeat.step()
    paused_at = rig.clock.now()
    rig.clock.advance(30)
    rig.gateway.commands = ["pause"]
    await scene.heartbeat.step()
    assert scene.heartbeat.commands.paused_since == paused_at
    rig.gateway.commands = ["resume"]
    await scene.heartbeat.step()
    assert scene.heartbeat.commands.paused_since is None


async def test_the_last_beat_says_that_the_worker_leaves_and_how_its_queue_stands(scene: Scene, rig: Rig) -> None:
    await scene.heartbeat.step()
    await rig.save("t1")
    rig.gateway.commands = ["pause"]
    await scene.heartbeat.goodbye()
    first, last = rig.gateway.beats
    assert not first["leaving"]
    assert (last["leaving"], last["active_tasks"], last["queue"]["unsynced"]) == (True, 0, 1)
    assert not scene.control.paused


async def test_no_last_beat_goes_to_a_gateway_that_is_away_and_a_failing_one_is_no_matter(
    scene: Scene, rig: Rig
) -> None:
    rig.gateway.play("heartbeat", traps.status(503))
    await scene.heartbeat.goodbye()
    rig.gateway.play("heartbeat", traps.status(503))
    await scene.heartbeat.step()
    asked = rig.gateway.count("heartbeat")
    await scene.heartbeat.goodbye()
    assert rig.gateway.count("heartbeat") == asked


async def test_it_beats_on_when_the_gateway_is_away(scene: Scene, rig: Rig) -> None:
    rig.gateway.play("heartbeat", traps.status(503), times=3)
    for _ in range(3):
        assert 30 <= await scene.heartbeat.step() <= 240
    await scene.heartbeat.step()
    assert len(rig.gateway.beats) == 1
    assert len(rig.seen(UpstreamOffline)) == 1
    assert len(rig.seen(UpstreamOnline)) == 1


async def test_it_beats_soon_after_a_delivery_that_worked(scene: Scene, rig: Rig) -> None:
    await rig.save("t1")
    rig.gateway.play("heartbeat", traps.status(503))
    assert await scene.heartbeat.step() >= 30
    await scene.sync.step()
    assert scene.woken == ["heartbeat"]
    wait = await scene.heartbeat.step()
    assert 0 < wait <= 5
    assert rig.gateway.beats == []
    rig.clock.advance(wait)
    rig.gateway.commands = ["pause"]
    assert await scene.heartbeat.step() == 30
    assert scene.control.paused


async def test_a_wish_for_silence_is_kept_but_never_so_long_that_the_gateway_forgets_us(scene: Scene, rig: Rig) -> None:
    rig.gateway.play("heartbeat", traps.slow_down(seconds=100))
    rig.gateway.play("heartbeat", traps.slow_down(seconds=10_000))
    assert await scene.heartbeat.step() == 100
    assert await scene.heartbeat.step() == 240


async def test_a_token_that_is_refused_is_tried_again_at_the_longest_backoff_and_said_once(
    scene: Scene, rig: Rig
) -> None:
    rig.gateway.play("heartbeat", traps.status(503))
    rig.gateway.play("heartbeat", traps.status(401), times=3)
    await scene.heartbeat.step()
    assert [await scene.heartbeat.step() for _ in range(3)] == [300, 300, 300]
    denied = scene.offline
    assert denied is not None
    assert denied.denied
    assert [event.denied for event in rig.seen(UpstreamOffline) if isinstance(event, UpstreamOffline)] == [False, True]
    assert await scene.heartbeat.step() == 30
    assert scene.offline is None
    assert len(rig.seen(UpstreamOnline)) == 1


async def test_of_several_processes_on_a_store_one_beats_and_all_obey(scene: Scene, rig: Rig) -> None:
    async with LocalPersistenceManager.open(rig.lpm.path, clock=rig.clock, worker="worker") as other:
        peer = Scene(rig, other, "worker-1-2")
        await scene.heartbeat.step()
        await peer.heartbeat.step()
        await rig.claim("t1")
        rig.gateway.commands = ["pause", "platforms:vgsi"]
        await scene.heartbeat.step()
        await peer.heartbeat.step()
        assert len(rig.gateway.beats) == 2, "the peer has not beaten"
        assert (peer.control.paused, peer.control.platforms) == (True, frozenset({"vgsi"}))
        rig.gateway.commands = ["resume"]
        await scene.heartbeat.step()
        rig.lpm.leader_locks.release()
        await peer.heartbeat.step()
        assert not peer.control.paused
        assert len(rig.gateway.beats) == 4, "it goes on where the other has ended"
        assert rig.gateway.beats[-1]["active_tasks"] == 1, "what a peer works on counts, too"


async def test_only_the_last_process_of_a_store_says_goodbye(scene: Scene, rig: Rig) -> None:
    async with LocalPersistenceManager.open(rig.lpm.path, clock=rig.clock, worker="worker") as other:
        peer = Scene(rig, other, "worker-1-2")
        assert [process_name(one, "worker-1") for one in (rig.lpm, other)] == ["worker-1", "worker-1-2"]
        await scene.heartbeat.step()
        await scene.heartbeat.goodbye()
        assert [beat["leaving"] for beat in rig.gateway.beats if beat.get("leaving")] == []
        await peer.heartbeat.goodbye()
        assert [beat["leaving"] for beat in rig.gateway.beats if beat.get("leaving")] == [True]


SITE = ("echo", "CT", "hartford")


async def test_the_fleet_is_asked_for_every_platform(scene: Scene, rig: Rig) -> None:
    rig.gateway.selectors = [
        {
            "platform": "echo",
            "field": "owner",
            "selector": ".new",
            "selector_type": "css",
            "success_rate": 0.9,
            "samples": 50,
        },
        {
            "platform": "echo",
            "field": "owner",
            "selector": ".old",
            "selector_type": "css",
            "success_rate": 0.1,
            "samples": 50,
        },
    ]
    await scene.heartbeat.step()
    order = scene.learning.ranking.order(SITE).ranked("owner", (Css(".old"), Css(".new")))
    assert [selector.expression for selector in order] == [".new", ".old"]


async def test_a_gateway_without_ranked_selectors_is_asked_once(scene: Scene, rig: Rig) -> None:
    rig.gateway.extras = False
    for _ in range(3):
        await scene.heartbeat.step()
        rig.clock.advance(3_600)
    assert rig.gateway.count("selectors") == 1


async def test_a_fleet_that_cannot_be_asked_is_asked_again_before_long(scene: Scene, rig: Rig) -> None:
    rig.gateway.play("selectors", traps.status(503))
    for _ in range(2):
        await scene.heartbeat.step()
    assert rig.gateway.count("selectors") == 1
    rig.clock.advance(600)
    for _ in range(3):
        await scene.heartbeat.step()
    assert rig.gateway.count("selectors") == 3, "one of each platform"
