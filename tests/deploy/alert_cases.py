"""For each alert what Prometheus sees, when the alert comes, and until when it must not: by Prometheus' own tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

W, G = '{job="parcelpost-worker",instance="w1"', '{job="parcelpost-gateway",instance="g1"'


class Case(NamedTuple):
    series: Mapping[str, str]
    """By the minute, in promtool's short form: `5+1x90` begins at 5 and grows by 1, 90 times."""
    quiet_at: str
    at: str
    labels: str = 'instance="w1"'
    """Of the alert, besides its own."""


CASES: Mapping[str, Case] = {
    "ParcelpostWorkerGone": Case({f"up{W}}}": "1x10 0x20"}, "12m", "17m", 'instance="w1", job="parcelpost-worker"'),
    "ParcelpostWorkerRestarts": Case(
        {f"parcelpost_backups_created{W}}}": "100x10 200x5 300x5 400x5 500x20"},
        "24m",
        "30m",
        'instance="w1", job="parcelpost-worker"',
    ),
    "ParcelpostUpstreamDenied": Case(
        {
            f'parcelpost_upstream_denied{W},loop="sync"}}': "0x9 1x30",
            f'parcelpost_upstream_denied{W},loop="heartbeat"}}': "0x40",
        },
        "12m",
        "16m",
    ),
    "ParcelpostUpstreamOffline": Case(
        {
            f'parcelpost_upstream_up{W},loop="sync"}}': "1x9 0x90",
            f'parcelpost_upstream_up{W},loop="collector"}}': "1x19 0x90",
        },
        "45m",
        "51m",
    ),
    "ParcelpostNothingDelivered": Case(
        {
            f'parcelpost_upstream_up{W},loop="sync"}}': "1x9 0x90",
            f'parcelpost_upstream_up{W},loop="collector"}}': "1x90",
        },
        "20m",
        "30m",
    ),
    "ParcelpostOutboxOld": Case(
        {f'parcelpost_oldest_seconds{W},what="unsynced_result"}}': "0+60x120"},
        "60m",
        "72m",
        'instance="w1", job="parcelpost-worker", what="unsynced_result"',
    ),
    "ParcelpostOutboxGrowing": Case(
        {f'parcelpost_outbox{W},state="unsynced"}}': "0+100x120"},
        "60m",
        "75m",
        'instance="w1", job="parcelpost-worker", state="unsynced"',
    ),
    "ParcelpostResultsRejected": Case(
        {f'parcelpost_outbox{W},state="rejected"}}': "0x9 2x20"},
        "12m",
        "16m",
        'instance="w1", job="parcelpost-worker", state="rejected"',
    ),
    "ParcelpostStoreNearlyFull": Case(
        {f"parcelpost_store_bytes{W}}}": "0+10x120", f"parcelpost_store_max_bytes{W}}}": "1000x120"},
        "80m",
        "99m",
        'instance="w1", job="parcelpost-worker"',
    ),
    "ParcelpostStoreFull": Case(
        {f"parcelpost_store_level{W}}}": "0x9 1x20"}, "12m", "16m", 'instance="w1", job="parcelpost-worker"'
    ),
    "ParcelpostDiskFillsUp": Case(
        {f"parcelpost_disk_free_bytes{W}}}": "100000-100x400"}, "30m", "90m", 'instance="w1", job="parcelpost-worker"'
    ),
    "ParcelpostInodesRunOut": Case(
        {f"parcelpost_disk_free_inodes{W}}}": "100000-100x400"}, "30m", "90m", 'instance="w1", job="parcelpost-worker"'
    ),
    "ParcelpostBackupOld": Case(
        {f"parcelpost_without_backup_seconds{W}}}": "172800+60x120"},
        "30m",
        "70m",
        'instance="w1", job="parcelpost-worker"',
    ),
    "ParcelpostPlatformPaused": Case(
        {f'parcelpost_platform_paused{W},platform="vgsi"}}': "_x10 1x150"},
        "2h",
        "2h15m",
        'instance="w1", platform="vgsi"',
    ),
    "ParcelpostFieldsBroken": Case(
        {f'parcelpost_broken_fields{W},platform="vgsi"}}': "0x9 3x30"},
        "20m",
        "26m",
        'instance="w1", job="parcelpost-worker", platform="vgsi"',
    ),
    "ParcelpostTasksFail": Case(
        {
            f'parcelpost_attempts_total{W},platform="vgsi",outcome="done"}}': "0+10x90",
            f'parcelpost_attempts_total{W},platform="vgsi",outcome="give_up"}}': "0x30 0+1x60",
            f'parcelpost_attempts_total{W},platform="echo",outcome="done"}}': "0+10x90",
            f'parcelpost_attempts_total{W},platform="echo",outcome="give_up"}}': "0x90",
        },
        "35m",
        "85m",
        'instance="w1", platform="vgsi"',
    ),
    "ParcelpostAttemptsFail": Case(
        {
            f'parcelpost_attempts_total{W},platform="vgsi",outcome="done"}}': "0+1x150",
            f'parcelpost_attempts_total{W},platform="vgsi",outcome="retry"}}': "0x30 0+3x120",
        },
        "45m",
        "140m",
        'instance="w1", platform="vgsi"',
    ),
    "ParcelpostLoopFails": Case(
        {f'parcelpost_loop_failures_total{W},loop="janitor"}}': "0x10 1+1x20"},
        "11m",
        "20m",
        'instance="w1", loop="janitor"',
    ),
    "ParcelpostMemoryShort": Case(
        {f"parcelpost_memory_pressure{W}}}": "1x9 2x30"}, "20m", "26m", 'instance="w1", job="parcelpost-worker"'
    ),
    "ParcelpostGatewayGone": Case({f"up{G}}}": "0x20"}, "3m", "6m", 'instance="g1", job="parcelpost-gateway"'),
    "ParcelpostGatewayErrors": Case(
        {
            f'parcelpost_gateway_responses_total{G},status="2xx"}}': "0+100x60",
            f'parcelpost_gateway_responses_total{G},status="5xx"}}': "0x20 0+5x40",
        },
        "25m",
        "40m",
        'instance="g1"',
    ),
    "ParcelpostQueueWithoutWorkers": Case(
        {
            f'parcelpost_gateway_tasks{G},platform="vgsi",state="queued"}}': "5x60",
            f"parcelpost_gateway_workers_alive{G}}}": "1x19 0x40",
        },
        "25m",
        "31m",
        "",
    ),
    "ParcelpostQueueOld": Case(
        {f'parcelpost_gateway_oldest_queued_seconds{G},platform="vgsi"}}': "86000+60x120"},
        "60m",
        "70m",
        'platform="vgsi"',
    ),
    "ParcelpostLeasesExpire": Case(
        {
            f'parcelpost_gateway_events_total{G},platform="vgsi",outcome="granted"}}': "0+10x120",
            f'parcelpost_gateway_events_total{G},platform="vgsi",outcome="expired"}}': "0x30 0+2x90",
        },
        "35m",
        "90m",
        "",
    ),
    "ParcelpostTasksDead": Case(
        {f'parcelpost_gateway_tasks{G},platform="vgsi",state="dead"}}': "0x9 1x30"}, "15m", "21m", 'platform="vgsi"'
    ),
    "ParcelpostGatewayRejects": Case(
        {f'parcelpost_gateway_events_total{G},platform="vgsi",outcome="rejected"}}': "_x10 1x20"},
        "9m",
        "15m",
        'platform="vgsi"',
    ),
    "ParcelpostCountyStale": Case(
        {
            f'parcelpost_gateway_schedule_fresh_ratio{G},schedule="weekly",state="FL",county="union"}}': "1x9 0.5x120",
            f'parcelpost_gateway_schedule_status{G},schedule="weekly",status="running"}}': "1x140",
            f'parcelpost_gateway_schedule_status{G},schedule="weekly",status="paused"}}': "0x140",
        },
        "65m",
        "75m",
        'county="union", schedule="weekly", state="FL"',
    ),
    "ParcelpostScheduleFailing": Case(
        {f'parcelpost_gateway_schedule_status{G},schedule="weekly",status="failing"}}': "0x9 1x60"},
        "20m",
        "26m",
        'schedule="weekly"',
    ),
    "ParcelpostChangesLate": Case({f"parcelpost_gateway_results_to_compare{G}}}": "0x9 20000x60"}, "35m", "41m", ""),
    "ParcelpostResultsLeft": Case({f"parcelpost_gateway_unsynced_left{G}}}": "0x9 12x60"}, "30m", "41m", ""),
    "ParcelpostWebhookFailing": Case(
        {f'parcelpost_gateway_webhook_failing_seconds{G},webhook="crm"}}': "0+60x120"}, "59m", "62m", 'webhook="crm"'
    ),
}


def promtool_file(rules: str, severities: Mapping[str, str]) -> dict[str, Any]:
    """What `promtool test rules` reads."""
    return {"rule_files": [rules], "tests": [_test(name, case, severities[name]) for name, case in CASES.items()]}


def _test(name: str, case: Case, severity: str) -> dict[str, Any]:
    asked = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
    comes = ", ".join(filter(None, (f'alertname="{name}", alertstate="firing", severity="{severity}"', case.labels)))
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "promql_expr_test": [
            {"expr": asked, "eval_time": case.quiet_at, "exp_samples": []},
            {"expr": asked, "eval_time": case.at, "exp_samples": [{"labels": f"ALERTS{{{comes}}}", "value": 1}]},
        ],
    }
