"""Ending everything of a drill, whatever happened before: no step is skipped because another one failed."""

from collections.abc import Callable

from hangdrill.drill.session import Session

__all__ = ["end_everything"]


def end_everything(session: Session) -> tuple[str, ...]:
    """Release, tell, end, finish, sweep. Returns what went wrong; safe to repeat, and quick when all is over."""
    steps: tuple[Callable[[], None], ...] = (
        session.release,
        session.tell_teardown,
        session.end_job,
        session.finish_road,
        session.look_at_delivered,
        session.sweep,
    )
    problems = tuple(problem for step in steps if (problem := _attempt(step)))
    for problem in problems:
        session.journal.write("remark", {"text": problem})
    return problems


def _attempt(step: Callable[[], None]) -> str:
    try:
        step()
    except Exception as error:  # the next steps must run: they end processes
        return f"{getattr(step, '__name__', step)}: {type(error).__name__}: {error}"
    return ""
