"""Reads of records, which may be small or huge: a page ends where they make some megabytes together."""

from __future__ import annotations

from parcelpost.gateway.sql.filters import KEY, Conditions

PAGE_CHARS = 8 * 1024 * 1024


def bounded(columns: str, source: str, conditions: Conditions, order: str) -> str:
    """`columns` of the first rows that `conditions` leave of `source` (parcels `p` and results `r`), in that order.

    After those of the conditions it takes two arguments: how many rows at most, and after how many characters of data
    no other row begins. What a page does not hold is not read into memory: lengths are, one after the other.
    """
    plain = order.replace("p.", "").replace("r.", "")
    return f"""
WITH page AS (
    SELECT {KEY}, p.parcel_no, r.task_id, r.scraped_at, length(r.data) AS chars
    FROM {source} WHERE {conditions} ORDER BY {order} LIMIT ?
), counted AS (
    SELECT parcel_no, task_id,
           sum(chars) OVER (ORDER BY {plain} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS chars_before
    FROM page
)
SELECT {columns}
FROM counted c
JOIN parcels p ON p.parcel_no = c.parcel_no
JOIN results r ON r.parcel_no = c.parcel_no AND r.task_id = c.task_id
WHERE coalesce(c.chars_before, 0) < ? ORDER BY {order}
"""
