"""Results as JUnit XML, for CI systems: FAIL is a failure, UNKNOWN an error, and neither is ever a skip."""

import re
from xml.etree import ElementTree as Xml

import msgspec

from hangdrill.model.run import CheckResult, DrillResult
from hangdrill.model.summary import Summary
from hangdrill.model.verdict import Verdict

__all__ = ["junit_xml", "properties_of"]

UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, such as the control characters of a job's output."""


def junit_xml(summary: Summary) -> bytes:
    """One suite, one test case a drill."""
    suite = Xml.Element(
        "testsuite",
        name="hangdrill",
        tests=str(len(summary.results)),
        failures=str(summary.failed),
        errors=str(summary.unknown),
        time=f"{sum(result.timings.total_s or 0.0 for result in summary.results):.3f}",
    )
    suite.extend(_case(result, summary.out_dir) for result in summary.results)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    text: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def properties_of(result: DrillResult) -> tuple[tuple[str, str], ...]:
    """Verdict, who was expected and who was named, the sentence, and every timing that is known."""
    culprits = result.diagnosis.culprits if result.diagnosis is not None else ()
    timings = msgspec.structs.asdict(result.timings)
    return (
        ("verdict", result.verdict.value),
        ("culprits", ",".join(str(culprit.rank) for culprit in culprits)),
        ("expected_culprits", ",".join(map(str, result.expected_culprits or ()))),
        ("sentence", result.sentence),
        *((name, f"{seconds:.3f}") for name, seconds in timings.items() if seconds is not None),
    )


def _case(result: DrillResult, out_dir: str) -> Xml.Element:
    group, _, name = result.scenario.rpartition("/")
    case = Xml.Element(
        "testcase",
        classname=_clean(f"hangdrill.{group.replace('/', '.') or 'drill'}"),
        name=_clean(name),
        time=f"{result.timings.total_s or 0.0:.3f}",
    )
    properties = Xml.SubElement(case, "properties")
    for key, value in (*properties_of(result), ("run_dir", f"{out_dir}/{result.scenario}")):
        Xml.SubElement(properties, "property", name=key, value=_clean(value))
    if result.verdict is not Verdict.PASS:
        tag = "failure" if result.verdict is Verdict.FAIL else "error"
        outcome = Xml.SubElement(case, tag, message=_clean(_message(result)), type=f"hangdrill.{result.verdict.value}")
        lines = [_line(check) for check in result.checks if check.verdict is not Verdict.PASS]
        outcome.text = _clean("\n".join(lines))
    return case


def _message(result: DrillResult) -> str:
    """The first check that made the verdict what it is; without any, the sentence."""
    decisive = next((check for check in result.checks if check.verdict is result.verdict), None)
    return f"{decisive.name}: {decisive.detail}" if decisive is not None else result.sentence or result.verdict.value


def _line(check: CheckResult) -> str:
    return f"{check.verdict.value}: {check.name}: {check.detail}" + (f" (mend: {check.mend})" if check.mend else "")


def _clean(text: str) -> str:
    return UNPRINTABLE.sub("?", text)
