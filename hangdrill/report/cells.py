"""Text of others as rich may print it: names out of dumps and scenarios are words, and never markup.

rich reads a plain `str` in a cell as markup: `[/]` is an error there, `[link=...]` a live link, `[conceal]` hides what
follows. So every cell, title and line that holds a name is a Text, made here.
"""

from rich.text import Text

from hangdrill.report.story.text import harmless

__all__ = ["cell"]


def cell(text: str, style: str = "") -> Text:
    """The text as it is, in one style, on as many lines as it has; what could steer a terminal is replaced."""
    return Text("\n".join(map(harmless, text.split("\n"))), style=style)
