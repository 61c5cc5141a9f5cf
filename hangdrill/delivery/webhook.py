"""One POST to a webhook, within a deadline, whatever answers there."""

import http.client
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from hangdrill.model.delivery import IncidentNews
from hangdrill.recorder.printable import printable

__all__ = ["OUTPUT_BYTES", "Answer", "post_in_time", "printable_output", "webhook_url"]

OUTPUT_BYTES = 2000
"""Of what a hook says, so much is kept."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


def webhook_url(webhook: str, environ: Mapping[str, str]) -> str:
    """The URL itself; `$NAME` is what the environment has under that name, "" when it has nothing."""
    # A secret that was mounted from a file often ends with a newline.
    return (environ.get(webhook[1:], "") if webhook.startswith("$") else webhook).strip()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected becomes a GET without its body: no delivery."""

    def redirect_request(self, *_arguments: object, **_more: object) -> None:
        """Never."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one POST. again: another one may help."""

    status: int | None = None
    error: str = ""
    output: str = ""
    late: bool = False
    again: bool = False


def post_in_time(url: str, news: IncidentNews, *, left_s: float) -> Answer:
    """One POST in a thread of its own: an answer that drips in has no end that a socket's timeout would see."""
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_post(url, news, left_s)), name="webhook", daemon=True).start()
    try:
        return answers.get(timeout=max(0.0, left_s))
    except queue.Empty:
        return Answer(error="no answer in time", late=True)


def _post(url: str, news: IncidentNews, left_s: float) -> Answer:
    if not _is_web(url):
        return Answer(error="it is no http:// or https:// URL")
    headers = {"Content-Type": "application/json", "User-Agent": "hangdrill", "Idempotency-Key": news.key}
    request = urllib.request.Request(url, data=msgspec.json.encode(news), headers=headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=max(0.1, left_s)) as answer:
            return Answer(status=answer.status, output=printable_output(answer.read(OUTPUT_BYTES)))
    except urllib.error.HTTPError as error:
        with error:
            output = printable_output(error.read(OUTPUT_BYTES))
        return Answer(status=error.code, error=f"HTTP status {error.code}", output=output, again=error.code in _AGAIN)
    except (ValueError, http.client.InvalidURL):  # whose texts quote the URL, and so its secret
        return Answer(error="the URL is not well written: scheme, host, port and path, and nothing else")
    except Exception as error:  # whatever answers there may not speak HTTP at all
        reason = getattr(error, "reason", error)
        late = isinstance(reason, TimeoutError)
        text = "no answer in time" if late else f"{type(reason).__name__}: {reason}"[:300]
        return Answer(error=text, late=late, again=True)


def _is_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def printable_output(data: bytes) -> str:
    """What a hook said, harmless in a terminal and in JSON."""
    text = data.decode("utf-8", "replace")
    return " / ".join(printable(line) for line in text.splitlines() if line.strip())[:OUTPUT_BYTES]
