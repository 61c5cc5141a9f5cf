"""The two forms of the checklist, by their templates. Whatever a stack or a user wrote is text there, never markup."""

import functools
import re

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from hangdrill.model.receipt import Receipt
from hangdrill.report.checklist.view import checklist_of
from hangdrill.report.story.text import harmless

__all__ = ["checklist_html", "checklist_markdown"]

MARKUP = re.compile(r"([\\`*\[\]<>|#~]|__)")


def checklist_html(receipt: Receipt, *, key_id: str = "") -> str:
    """One self-contained page without scripts, made for A4 paper too. key_id: of the key that signed the receipt."""
    return _template("checklist.html.j2", as_html=True).render(list=checklist_of(receipt, key_id))


def checklist_markdown(receipt: Receipt, *, key_id: str = "") -> str:
    """The same as Markdown with tables."""
    text = _template("checklist.md.j2", as_html=False).render(list=checklist_of(receipt, key_id))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@functools.cache
def _template(name: str, *, as_html: bool) -> Template:
    environment = Environment(
        loader=PackageLoader("hangdrill.report.checklist", ""),
        autoescape=as_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=(lambda value: harmless(value) if isinstance(value, str) else value) if as_html else None,
    )
    environment.filters["md"] = _escaped
    return environment.get_template(name)


def _escaped(text: str) -> str:
    """One line of text in which Markdown sees no markup."""
    return MARKUP.sub(lambda match: "".join(f"\\{character}" for character in match[0]), harmless(text))
