"""Keeps secrets out of everything that is printed or stored. Pure.

Two ways in: a URL (user:password@, tokens in the query, a chat's webhook, whose whole path is the secret), and values
of environment variables that turn up in a library's error text.
"""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

__all__ = ["Redactor", "secret_in", "webhook_shown"]

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|ACCOUNT_KEY|ACCESS_KEY|API_KEY|PRIVATE|WEBHOOK|SAS|SIGNATURE|CONNECTION_STR",
    re.IGNORECASE,
)
_SECRET_QUERY = re.compile(r"sig|signature|token|secret|password|passwd|key|credential|auth", re.IGNORECASE)
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]{0,40}://)(?:[^/\s:@]+:(?!\d+/)[^\s@]+|[^/\s@]+)@(?:[^/\s@]*@)*")
"""Whatever comes before the last @ of the authority, also where a password holds one, or a slash (keys of AWS do)."""
_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\d+/)[^\s@]+@")
"""Not a port, behind which a name with an @ may follow."""
_QUERY_VALUE = re.compile(
    r"(?P<name>[?&;](?:X-Amz-[\w-]+|sig|signature|token|[\w-]*secret|[\w-]*password|[\w-]*key[\w-]*)=)[^&\s;\"']+", re.I
)
_SHORTEST = 6
"""A value shorter than this is no secret, and masking it would mask words."""
_MASK = "***"


class Redactor:
    """Masks what must not be seen in a text."""

    def __init__(self, environ: Mapping[str, str], *more: str) -> None:
        values = {value for name, value in environ.items() if _SECRET_NAME.search(name)} | set(more)
        # The longest first: one secret may be the beginning of another.
        self._values = sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for value in self._values:
            text = text.replace(value, _MASK)
        return _QUERY_VALUE.sub(rf"\g<name>{_MASK}", _USERINFO.sub(rf"\g<scheme>{_MASK}@", text))


def secret_in(url: str) -> str:
    """What secret a URL of a store holds, in words that do not repeat it; "" for none."""
    # Not by urlsplit alone: a chained URL (simplecache::s3://KEY:SECRET@x) and a bracket in a password are lost on it.
    if _PASSWORD.search(url):
        return "a password"
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    names = [name for name, value in parse_qsl(parts.query, keep_blank_values=True) if value]
    secret = next((name for name in names if _SECRET_QUERY.search(name)), None)
    return f"a secret ({secret}=...)" if secret else ""


def webhook_shown(url: str) -> str:
    """A webhook for people: its path is its secret, so only scheme and host. A variable's name is shown as it is."""
    if url.startswith("$"):
        return url
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a webhook"
    return f"{parts.scheme}://{host}{port}/{_MASK}" if host else "a webhook"
