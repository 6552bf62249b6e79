"""How county pages write amounts and dates."""

from __future__ import annotations

from datetime import date


def dollars(amount: int) -> str:
    return f"${amount:,}"


def cents(amount: int) -> str:
    return f"${amount // 100:,}.{amount % 100:02}"


def us_day(day: date, *, zeros: bool = False) -> str:
    return f"{day:%m/%d/%Y}" if zeros else f"{day.month}/{day.day}/{day.year}"
