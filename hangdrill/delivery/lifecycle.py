"""How long an S3 bucket keeps an object of a prefix: its lifecycle rules and its object lock, where the API tells."""

from datetime import datetime, timezone
from typing import Any

from hangdrill.delivery.problems import meaning_of
from hangdrill.delivery.s3 import S3Store, error_code
from hangdrill.model.delivery import Deletion, KeptPlace

__all__ = ["deletions_of", "kept_in_bucket"]

_NO_RULES = frozenset({"NoSuchLifecycleConfiguration"})
_NO_LOCK = frozenset({"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"})
_DAYS_PER_YEAR = 365.0


def kept_in_bucket(store: S3Store, url: str, *, now: datetime) -> KeptPlace:
    """Of new objects below the store's prefix. Not told where the API refuses to say."""
    try:
        answer = store.files.call_s3("get_bucket_lifecycle_configuration", Bucket=store.bucket)
        rules = list(answer.get("Rules", []))
    except Exception as error:  # every server has its own way to refuse
        if error_code(error) not in _NO_RULES and "NoSuchLifecycleConfiguration" not in str(error):
            why = f"the bucket's lifecycle rules cannot be read: {meaning_of(error, url).what}"
            return KeptPlace(place=url, what="delivered", told=False, why=why)
        rules = []
    deletions = deletions_of(rules, store.bucket, store.key_prefix or "", now=now)
    why = f"bucket {store.bucket} has {len(rules) or 'no'} lifecycle rule{'' if len(rules) == 1 else 's'}"
    return KeptPlace(
        place=url, what="delivered", told=True, why=why, deletions=deletions, locked_days=_locked_days(store)
    )


def deletions_of(rules: list[dict[str, Any]], bucket: str, prefix: str, *, now: datetime) -> tuple[Deletion, ...]:
    """The rules that delete objects of hangdrill below a prefix: they have no tags, and any size."""
    found = []
    for rule in rules:
        expiry = rule.get("Expiration") or {}
        if rule.get("Status") != "Enabled" or not _reaches(rule, prefix):
            continue
        days = expiry.get("Days")
        if days is None and (date := _as_date(expiry.get("Date"))) is not None:
            days = max(0.0, (date - now).total_seconds() / 86400)
        if days is not None:
            source = f"bucket {bucket}, lifecycle rule {rule.get('ID') or 'without a name'}"
            below = _prefix_of(rule)
            where = f"below {below}" if below else "of the whole bucket"
            found.append(Deletion(source=source, after_days=float(days), text=f"deletes objects {where}"))
    return tuple(found)


def _reaches(rule: dict[str, Any], prefix: str) -> bool:
    """Whether it holds for an object whose key begins with prefix: a rule may also name only some of those."""
    own = rule.get("Filter") or {}
    both = own.get("And") or {}
    if own.get("Tag") or both.get("Tags"):
        return False
    below = _prefix_of(rule)
    return prefix.startswith(below) or below.startswith(f"{prefix}/" if prefix else "")


def _prefix_of(rule: dict[str, Any]) -> str:
    own = rule.get("Filter") or {}
    return str(own.get("Prefix") or (own.get("And") or {}).get("Prefix") or rule.get("Prefix") or "")


def _as_date(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return None


def _locked_days(store: S3Store) -> float | None:
    """Of the default retention of an object lock; None when there is none, or nobody tells."""
    try:
        answer = store.files.call_s3("get_object_lock_configuration", Bucket=store.bucket)
    except Exception:  # it is a further assurance; without it nothing is lost
        return None
    rule = answer.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention", {})
    days = rule.get("Days") or rule.get("Years", 0) * _DAYS_PER_YEAR
    return float(days) if days else None
