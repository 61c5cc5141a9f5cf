"""The checklist of a certification, from its receipt alone: Markdown, and one HTML page to be printed and signed."""

from hangdrill.report.checklist.render import checklist_html, checklist_markdown

__all__ = ["checklist_html", "checklist_markdown"]
