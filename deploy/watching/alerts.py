"""The alerts that matter, each with what to do."""

from __future__ import annotations

from typing import NamedTuple

from deploy.watching.series import GATEWAY_JOB, WORKER_JOB, series


class Alert(NamedTuple):
    name: str
    expr: str
    lasts: str
    """For how long before anybody is told."""
    severity: str
    """critical: somebody should come now. warning: today."""
    summary: str
    remedy: str


_QUEUED = f"max(sum by (instance) ({series('gateway_tasks', state='queued')}))"
_ENDED = (
    f"sum by (instance, platform) (increase({series('attempts_total', outcome='~done|not_found|give_up', over='1h')}))"
)
_GIVEN_UP = f"sum by (instance, platform) (increase({series('attempts_total', outcome='give_up', over='1h')}))"
_TRIED_AGAIN = (
    f"sum by (instance, platform) (increase({series('attempts_total', outcome='~retry|blocked', over='1h')}))"
)
_ALL_TRIES = f"sum by (instance, platform) (increase({series('attempts_total', over='1h')}))"
_EXPIRED = f"sum(increase({series('gateway_events_total', outcome='expired', over='1h')}))"
_GRANTED = f"sum(increase({series('gateway_events_total', outcome='granted', over='1h')}))"
_REJECTS = series("gateway_events_total", outcome="rejected")
"""A series that begins with the first of them: an increase does not see that one."""
_REJECTED = f"sum by (platform) (increase({_REJECTS}[1h]))"
_5XX = f"sum by (instance) (rate({series('gateway_answers_total', status='5xx', over='5m')}))"
_ANSWERS = f"sum by (instance) (rate({series('gateway_answers_total', over='5m')}))"

WORKER = (
    Alert(
        "ParcelpostWorkerGone",
        f'up{{job="{WORKER_JOB}"}} == 0',
        "5m",
        "critical",
        "Worker {{ $labels.instance }} does not answer.",
        "See its log, then start it again: what it held is in its store.",
    ),
    Alert(
        "ParcelpostWorkerRestarts",
        f"changes({series('backups_created', over='1h')}) > 3",
        "0m",
        "warning",
        "Worker {{ $labels.instance }} was started {{ $value }} times in an hour.",
        "See its log for what ends it: memory, the watchdog, an error.",
    ),
    Alert(
        "ParcelpostUpstreamDenied",
        f"max by (instance) ({series('upstream_denied')}) == 1",
        "5m",
        "critical",
        "Worker {{ $labels.instance }} is not let in upstream.",
        "Run 'parcelpost status' there: the token, the address or the certificate must be mended.",
    ),
    Alert(
        "ParcelpostUpstreamOffline",
        f"max by (instance) ({series('upstream_up')}) == 0",
        "30m",
        "warning",
        "Worker {{ $labels.instance }} has not reached its upstream for half an hour.",
        "Nothing is lost: it scrapes on and keeps everything. See to the gateway and the network between them.",
    ),
    Alert(
        "ParcelpostNothingDelivered",
        f"max by (instance) ({series('upstream_up', loop='sync')}) == 0 and max by (instance)"
        f" ({series('upstream_up')}) == 1",
        "15m",
        "critical",
        "The upstream of {{ $labels.instance }} answers, and takes no results.",
        "Nothing is lost or rejected. Run 'parcelpost status' there for what the upstream says, and see its own log.",
    ),
    Alert(
        "ParcelpostOutboxOld",
        f"{series('oldest_seconds', what='unsynced_result')} > 3600",
        "10m",
        "warning",
        "A result on {{ $labels.instance }} has waited {{ $value | humanizeDuration }} to be delivered.",
        "Run 'parcelpost status' and 'parcelpost log --failed' there.",
    ),
    Alert(
        "ParcelpostOutboxGrowing",
        f"{series('outbox', state='unsynced')} > 1000 and delta({series('outbox', state='unsynced', over='1h')}) > 0",
        "1h",
        "warning",
        "Worker {{ $labels.instance }} scrapes faster than it delivers: {{ $value }} results wait.",
        "Raise sync.batch_size or sync.raw_uploads, or see why the gateway is slow.",
    ),
    Alert(
        "ParcelpostResultsRejected",
        f"{series('outbox', state='rejected')} > 0",
        "5m",
        "warning",
        "The gateway will not take {{ $value }} results of {{ $labels.instance }}.",
        "See why with 'parcelpost results list --delivery rejected', send again with 'parcelpost results retry --all'.",
    ),
    Alert(
        "ParcelpostStoreNearlyFull",
        f"{series('store_bytes')} / {series('store_max_bytes')} > 0.8",
        "15m",
        "warning",
        "The store of {{ $labels.instance }} is at {{ $value | humanizePercentage }} of its cap.",
        "See that it delivers; else raise storage.max_bytes.",
    ),
    Alert(
        "ParcelpostStoreFull",
        f"{series('store_level')} > 0",
        "5m",
        "critical",
        "Worker {{ $labels.instance }} takes no new tasks, as its store or its disk is full.",
        "Free space or raise storage.max_bytes. It goes on by itself, and delivers meanwhile.",
    ),
    Alert(
        "ParcelpostDiskFillsUp",
        f"predict_linear({series('disk_free_bytes', over='6h')}, 24 * 3600) < 0",
        "1h",
        "warning",
        "The disk of {{ $labels.instance }} will be full within a day, as things go.",
        "See what grows: 'parcelpost store status', and what else is on that disk.",
    ),
    Alert(
        "ParcelpostInodesRunOut",
        f"predict_linear({series('disk_free_inodes', over='6h')}, 24 * 3600) < 0",
        "1h",
        "warning",
        "The disk of {{ $labels.instance }} will have no free inodes within a day, as things go.",
        "Remove small files: see 'df -i', and what else is on that disk.",
    ),
    Alert(
        "ParcelpostBackupOld",
        f"{series('without_backup_seconds')} > 2 * 86400",
        "1h",
        "warning",
        "The newest backup of {{ $labels.instance }} is {{ $value | humanizeDuration }} old.",
        "See its log for why none is made; 'parcelpost store backup' makes one now.",
    ),
    Alert(
        "ParcelpostPlatformPaused",
        f"max by (instance, platform) ({series('platform_paused')}) == 1",
        "2h",
        "warning",
        "{{ $labels.platform }} has been paused on {{ $labels.instance }} for two hours.",
        "'parcelpost status' says why; 'parcelpost platforms resume {{ $labels.platform }}' ends it.",
    ),
    Alert(
        "ParcelpostFieldsBroken",
        f"{series('broken_fields')} > 0",
        "15m",
        "warning",
        "{{ $labels.platform }} no longer shows {{ $value }} fields where it did.",
        "'parcelpost status' names them with a page to look at; mend the platform, then 'parcelpost reparse'.",
    ),
    Alert(
        "ParcelpostTasksFail",
        f"{_GIVEN_UP} / {_ENDED} > 0.05 and {_GIVEN_UP} > 5",
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the tasks of {{ $labels.platform }} fail on {{ $labels.instance }}.",
        "'parcelpost tasks list --status failed' says why; then 'parcelpost tasks retry --status failed'.",
    ),
    Alert(
        "ParcelpostAttemptsFail",
        f"{_TRIED_AGAIN} / {_ALL_TRIES} > 0.5 and {_TRIED_AGAIN} > 20",
        "30m",
        "warning",
        "{{ $value | humanizePercentage }} of attempts at {{ $labels.platform }} fail on {{ $labels.instance }}.",
        "'parcelpost platforms list' and the log say what the site answers.",
    ),
    Alert(
        "ParcelpostLoopFails",
        f"sum by (instance, loop) (increase({series('loop_failures_total', over='15m')})) > 5",
        "0m",
        "warning",
        "The {{ $labels.loop }} loop of {{ $labels.instance }} fails again and again.",
        "See its log: LoopFailed.",
    ),
    Alert(
        "ParcelpostMemoryShort",
        f"{series('memory_pressure')} >= 2",
        "15m",
        "warning",
        "Worker {{ $labels.instance }} starts no task, as memory runs out.",
        "See what else uses the memory, or set fewer executor.slots.",
    ),
)

GATEWAY = (
    Alert(
        "ParcelpostGatewayGone",
        f'up{{job="{GATEWAY_JOB}"}} == 0',
        "5m",
        "critical",
        "Gateway {{ $labels.instance }} does not answer.",
        "Start it again. Workers go on meanwhile and lose nothing.",
    ),
    Alert(
        "ParcelpostGatewayErrors",
        f"{_5XX} / {_ANSWERS} > 0.01",
        "10m",
        "critical",
        "{{ $value | humanizePercentage }} of the answers of gateway {{ $labels.instance }} are errors of its own.",
        "'parcelpost gateway status' and its log: is the database or the raw store away?",
    ),
    Alert(
        "ParcelpostQueueWithoutWorkers",
        f"{_QUEUED} > 0 and max({series('gateway_workers_alive')}) == 0",
        "10m",
        "critical",
        "{{ $value }} tasks are queued and no worker is alive.",
        "Start workers; 'parcelpost gateway workers' says which there were.",
    ),
    Alert(
        "ParcelpostQueueOld",
        f"max by (platform) ({series('gateway_oldest_queued_seconds')}) > 86400",
        "1h",
        "warning",
        "A task of {{ $labels.platform }} has been queued for {{ $value | humanizeDuration }}.",
        "Does any worker take that platform? 'parcelpost gateway status'",
    ),
    Alert(
        "ParcelpostLeasesExpire",
        f"{_EXPIRED} / {_GRANTED} > 0.05 and {_EXPIRED} > 10",
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the leases end without a word.",
        "Workers die or lose the gateway: 'parcelpost gateway workers'.",
    ),
    Alert(
        "ParcelpostTasksDead",
        f"max by (platform) ({series('gateway_tasks', state='dead')}) > 0",
        "10m",
        "warning",
        "{{ $value }} tasks of {{ $labels.platform }} were given up, as their leases ended without a word too often.",
        "Find out why, then 'parcelpost gateway requeue --state dead'.",
    ),
    Alert(
        "ParcelpostGatewayRejects",
        f"{_REJECTED} > 0 or sum by (platform) ({_REJECTS} unless {_REJECTS} offset 1h) > 0",
        "0m",
        "warning",
        "Results of {{ $labels.platform }} were not taken.",
        "The workers that sent them say why: 'parcelpost results list --delivery rejected'.",
    ),
    Alert(
        "ParcelpostResultsLeft",
        f"max({series('gateway_unsynced_left')}) > 0",
        "30m",
        "warning",
        "{{ $value }} results are in the stores of workers that are gone.",
        "'parcelpost gateway workers' names them: start each again, or run its store until it is empty.",
    ),
)

GROUPS = {"parcelpost-worker": WORKER, "parcelpost-gateway": GATEWAY}
