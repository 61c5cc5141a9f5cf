"""Story -> one self-contained HTML page: no network, no fonts, works from file://, dark and light, and on paper.

Whatever came out of a dump is hostile: the template escapes everything, the data for the picture is JSON in which no
tag can be closed, and the page's own policy lets no script run but its own and nothing be loaded.
"""

from hangdrill.report.html.page import page_html

__all__ = ["page_html"]
