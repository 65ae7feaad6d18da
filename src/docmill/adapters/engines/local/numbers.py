"""Numbers of a spreadsheet as it displays them: per cent, thousands, decimals, currencies, leading zeros."""

from __future__ import annotations

import datetime
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

TOKEN = re.compile(r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|_.|\*.|(E[+-]0+)|([#0?.,]+)|(%)|(.)', re.DOTALL)
HOURS = re.compile(r"\[h+\]", re.IGNORECASE)
SECONDS = re.compile("s", re.IGNORECASE)
ODD = re.compile(r"/|@|General|[ymdhs]", re.IGNORECASE)
"""Fractions, texts and dates: no pattern of digits."""
QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')
LARGEST = Decimal(10) ** 30
LONGEST_FORMAT = 200
MOST_DECIMALS = 30


def displayed(value: Any, pattern: str) -> str:
    """The value as text. Days are written as ISO does, whatever the sheet's own order of day and month."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime.timedelta):
        return duration(value, pattern)
    if isinstance(value, datetime.datetime | datetime.time):
        return moment(value, pattern)
    if isinstance(value, int | float):
        try:
            return number(value, pattern)
        except (InvalidOperation, OverflowError, ValueError):
            return str(value)
    return str(value)


def duration(value: datetime.timedelta, pattern: str) -> str:
    if not HOURS.search(pattern) or value < datetime.timedelta():
        return str(value)
    minutes, seconds = divmod(round(value.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}" + (f":{seconds:02}" if SECONDS.search(pattern) else "")


def moment(value: datetime.datetime | datetime.time, pattern: str) -> str:
    text = str(value)
    whole = value.second == 0 and value.microsecond == 0
    return text.removesuffix(":00") if whole and not SECONDS.search(QUOTED.sub("", pattern)) else text


def number(value: float, pattern: str) -> str:
    plain = str(value) if isinstance(value, int) else format(value, ".15g")
    if len(pattern) > LONGEST_FORMAT or not any(mark in pattern for mark in "0#?"):
        return plain
    amount = Decimal(plain)
    if not amount.is_finite() or abs(amount) > LARGEST:
        return plain
    part, amount = section(amount, pattern)
    if ODD.search(QUOTED.sub("", part)) or len(digits(part)) > 1:
        return plain
    return " ".join(written(amount, part).split())


def section(amount: Decimal, pattern: str) -> tuple[str, Decimal]:
    """The part of the pattern that is for such an amount; the one for less than nought brings its own sign."""
    parts = re.split(r";(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", pattern)
    if amount < 0 and len(parts) > 1:
        return parts[1], -amount
    return (parts[2] if amount == 0 and len(parts) > 2 else parts[0]), amount


def digits(part: str) -> list[str]:
    """The places for digits; before an exponent and after it they are one."""
    return [found[5] for found in TOKEN.finditer(part) if found[5] and set(found[5]) & set("#0?")]


def written(amount: Decimal, part: str) -> str:
    tokens = list(TOKEN.finditer(part))
    places = next((found[5] for found in tokens if found[5] and set(found[5]) & set("#0?")), None)
    exponent = next((found[4] for found in tokens if found[4]), None)
    amount *= 100 ** sum(bool(found[6]) for found in tokens)
    text, done = "", False
    for found in tokens:
        if found[5] and found[5] == places and not done:
            text += scientific(amount, places, exponent) if exponent else grouped(abs(amount), places)
            done = True
        elif not found[4]:
            text += next((found[name] for name in (1, 2, 3, 5, 6, 7) if found[name] is not None), "")
    sign = "-" if amount < 0 and any(letter in "123456789" for letter in text) and not exponent else ""
    return sign + text


def grouped(amount: Decimal, places: str) -> str:
    whole, _, fraction = places.partition(".")
    stripped = places.rstrip(",") if "." not in places else whole.rstrip(",")
    amount /= 1000 ** (len(whole) - len(whole.rstrip(",")) + len(fraction) - len(fraction.rstrip(",")))
    fraction = fraction.rstrip(",")
    decimals = min(len(fraction), MOST_DECIMALS)
    with localcontext(prec=80):
        text = format(amount.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP), "f")
    front, _, rest = text.partition(".")
    rest = rest[: fraction.count("0")] + rest[fraction.count("0") :].rstrip("0")
    front = front.lstrip("0").zfill(stripped.count("0"))
    if "," in stripped:
        first = len(front) % 3 or 3
        front = ",".join([front[:first], *(front[at : at + 3] for at in range(first, len(front), 3))])
    return f"{front}.{rest}" if rest or (fraction and "0" in fraction) else front or "0"


def scientific(amount: Decimal, places: str, exponent: str) -> str:
    decimals = len(places.partition(".")[2])
    mantissa, _, power = format(amount, f".{decimals}E").partition("E")
    sign = "-" if power.startswith("-") else "+" if exponent[1] == "+" else ""
    return f"{mantissa}E{sign}{power.lstrip('+-').zfill(len(exponent) - 2)}"
