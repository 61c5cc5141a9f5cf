"""The page from the story: the template with autoescape, the picture's data as inert JSON, and the page's policy."""

import base64
import functools
import hashlib
import re

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from hangdrill import __version__
from hangdrill.checks.words import ranks_text
from hangdrill.report.html.axis import Axis, axis_for
from hangdrill.report.story.ranks import label_of
from hangdrill.report.story.text import seconds_text
from hangdrill.report.story.values import Story, StuckRow

__all__ = ["page_html"]

SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
HOLD = "@POLICY@"


def page_html(story: Story) -> str:
    """The whole page. Equal stories give equal pages."""
    text = _template().render(
        story=story,
        axis=_axis(story),
        data=_inert_json(story),
        policy=HOLD,
        version=__version__,
    )
    # The one script of the page is the template's own: nothing of a story is in it.
    script = SCRIPT.search(text)
    digest = hashlib.sha256(script.group(1).encode()).digest() if script is not None else b""
    return text.replace(HOLD, POLICY.format(base64.b64encode(digest).decode()), 1)


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("hangdrill.report.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ranks=label_of, all_ranks=ranks_text, seconds=seconds_text, since=_since)
    return environment.get_template("page.html.j2")


def _axis(story: Story) -> Axis:
    rows = story.timeline.rows
    return axis_for(time for row in rows for mark in row.marks for time in (mark.from_s, mark.to_s))


def _since(row: StuckRow) -> str:
    """When the ranks of a row came to where they are, from the stall's beginning."""
    if row.after_s is None:
        return ""
    low, high = (seconds_text(one) for one in row.after_s)
    return low if low == high else f"{low} to {high}"


def _inert_json(story: Story) -> Markup:
    """The pictures as JSON in which no character can end the element, begin a comment or a line."""
    text = msgspec.json.encode(story.pictures).decode()
    for character in "<>&'\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
