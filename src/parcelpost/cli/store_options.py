"""The store's options from the settings."""

from __future__ import annotations

from datetime import timedelta

from parcelpost.settings import Settings
from parcelpost.storage.options import StoreOptions


def store_options(settings: Settings) -> StoreOptions:
    storage, executor = settings.storage, settings.executor
    return StoreOptions(
        synchronous=storage.synchronous,
        busy_timeout_seconds=storage.busy_timeout_seconds,
        hung_after_seconds=storage.hung_after_seconds,
        max_bytes=storage.max_bytes,
        min_free_bytes=storage.min_free_bytes,
        min_free_inodes=storage.min_free_inodes,
        max_target_bytes=storage.max_target_bytes,
        max_result_bytes=storage.max_result_bytes,
        max_page_bytes=storage.max_page_bytes,
        cache_max_bytes=storage.cache_max_bytes,
        cache_ttl=timedelta(hours=storage.cache_ttl_hours),
        keep_tasks=timedelta(days=storage.keep_tasks_days),
        keep_results=timedelta(days=storage.keep_results_days),
        keep_metrics=timedelta(days=storage.keep_metrics_days),
        keep_sync_log=timedelta(days=storage.keep_sync_log_days),
        keep_signals=timedelta(days=storage.keep_signals_days),
        keep_artifacts=timedelta(days=storage.keep_artifacts_days),
        keep_backups=storage.keep_backups,
        retry_min=timedelta(seconds=executor.retry_min_seconds),
        retry_max=timedelta(seconds=executor.retry_max_seconds),
    )
