"""JSON schemas of the contracts, generated from the model. `hangdrill/schemas/` holds the same as files."""

import json
from typing import Any

import msgspec

from hangdrill.model.certification import ReceiptComparison, Verification
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.delivery import Delivery, IncidentNews
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.errors import UsageError
from hangdrill.model.fingerprint import Fingerprint
from hangdrill.model.matrix import Matrix
from hangdrill.model.preflight import Preflight
from hangdrill.model.receipt import Receipt
from hangdrill.model.run import DrillResult, Manifest
from hangdrill.model.scenario import Scenario
from hangdrill.model.summary import Summary

__all__ = ["SCHEMAS", "schema_of", "schema_text"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SCHEMAS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "certify-plan": (CertifyPlan, "hangdrill.certify-plan/1"),
    "delivery": (Delivery, "hangdrill.delivery/1"),
    "diagnosis": (Diagnosis, "hangdrill.diagnosis/1"),
    "fingerprint": (Fingerprint, "hangdrill.fingerprint/1"),
    "incident": (IncidentNews, "hangdrill.incident/1"),
    "manifest": (Manifest, "hangdrill.manifest/1"),
    "preflight": (Preflight, "hangdrill.preflight/1"),
    "receipt": (Receipt, "hangdrill.receipt/1"),
    "receipt-comparison": (ReceiptComparison, "hangdrill.receipt-comparison/1"),
    "result": (DrillResult, "hangdrill.result/1"),
    "scenario": (Scenario, "hangdrill.scenario/1"),
    "scenario-matrix": (Matrix, "hangdrill.scenario-matrix/1"),
    "summary": (Summary, "hangdrill.summary/1"),
    "verification": (Verification, "hangdrill.verification/1"),
}
"""By the name that `hangdrill schema` takes: the struct, and the name and number of the contract."""


def schema_of(name: str) -> dict[str, Any]:
    """The schema as tables, keys in a fixed order."""
    if name not in SCHEMAS:
        raise UsageError("no schema of this name", where=name, next_step=f"use one of: {', '.join(SCHEMAS)}")
    struct, contract = SCHEMAS[name]
    (top,), components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "$id": f"urn:{contract.replace('/', ':')}",
        **top,
        "$defs": dict(sorted(components.items())),
    }


def schema_text(name: str) -> str:
    """The schema as the file holds it."""
    return json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"
