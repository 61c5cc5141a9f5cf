"""Diagnosis and dumps -> Story: what a person is shown of an incident, the same in the terminal and on the page.

Pure values of bounded size, computed in one pass over the dumps; nothing here judges, prints or reads a file. All text
that came out of a dump has gone through `text.shown`: no control characters, no endless names.
"""

from hangdrill.report.story.tell import BRIEF, tell_story
from hangdrill.report.story.text import seconds_text, shown
from hangdrill.report.story.values import Story

__all__ = ["BRIEF", "Story", "seconds_text", "shown", "tell_story"]
