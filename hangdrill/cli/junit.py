"""The results as JUnit XML, for CI systems: FAIL is a failure, UNKNOWN an error, and neither is ever a skip."""

from xml.etree import ElementTree as Xml

from hangdrill.model.run import CheckResult, DrillResult
from hangdrill.model.summary import Summary
from hangdrill.model.verdict import Verdict

__all__ = ["junit_xml"]


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
    for result in summary.results:
        _case(suite, result, summary.out_dir)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    text: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: Xml.Element, result: DrillResult, out_dir: str) -> None:
    group, _, name = result.scenario.rpartition("/")
    case = Xml.SubElement(
        suite,
        "testcase",
        classname=f"hangdrill.{group or 'drill'}",
        name=name,
        time=f"{result.timings.total_s or 0.0:.3f}",
    )
    properties = Xml.SubElement(case, "properties")
    for key, value in _properties(result, out_dir):
        Xml.SubElement(properties, "property", name=key, value=value)
    if result.verdict is not Verdict.PASS:
        tag = "failure" if result.verdict is Verdict.FAIL else "error"
        outcome = Xml.SubElement(case, tag, message=result.sentence or result.verdict.value, type=f"hangdrill.{tag}")
        outcome.text = "\n".join(_line(check) for check in result.checks if check.verdict is not Verdict.PASS)


def _properties(result: DrillResult, out_dir: str) -> list[tuple[str, str]]:
    culprits = result.diagnosis.culprits if result.diagnosis else ()
    return [
        ("verdict", result.verdict.value),
        ("culprits", ",".join(str(culprit.rank) for culprit in culprits)),
        ("run_dir", f"{out_dir}/{result.scenario}"),
    ]


def _line(check: CheckResult) -> str:
    return f"{check.verdict.value}: {check.name}: {check.detail}" + (f" ({check.mend})" if check.mend else "")
