"""Text out of a dump is hostile: here it loses what could move a cursor, turn the line around or fill the screen.
And how a time is said."""

import re

__all__ = ["MOST_CHARACTERS", "harmless", "seconds_text", "shown"]

MOST_CHARACTERS = 300

DANGEROUS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Control characters (escape sequences of a terminal), direction overrides, invisible marks and lone surrogates."""


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text on one line, with its dangerous characters replaced, and its middle left out when it is long."""
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return harmless(text)


def harmless(text: str) -> str:
    """The text on one line, with its dangerous characters replaced."""
    return DANGEROUS.sub("\N{REPLACEMENT CHARACTER}", text)


def seconds_text(seconds: float) -> str:
    """ "+12.4 ms", "-3.2 s", "0"."""
    size = abs(seconds)
    if size < 5e-7:
        return "0"
    sign = "\N{MINUS SIGN}" if seconds < 0 else "+"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if size < limit:
            return f"{sign}{size * factor:.3g} {unit}"
    return f"{sign}{size / 3600:,.3g} h"
