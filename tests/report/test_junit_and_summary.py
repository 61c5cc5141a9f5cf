"""CI systems read FAIL as a failure and UNKNOWN as an error, never as a skip; summary.json reads back equal."""

from xml.etree import ElementTree as Xml

import msgspec
from healthy_runs import mutate
from sample_results import failed_run, passed_run, result_of, unknown_run

from hangdrill.model.summary import Summary
from hangdrill.model.verdict import Verdict
from hangdrill.report.junit import junit_xml
from hangdrill.report.summary import summary_json, summary_of


def a_summary():
    return summary_of([result_of(run) for run in (passed_run(), failed_run(), unknown_run())], out_dir="/out")


def cases():
    return Xml.fromstring(junit_xml(a_summary())).findall("testsuite/testcase")


def test_suite_counts_failures_and_errors():
    suite = Xml.fromstring(junit_xml(a_summary())).find("testsuite")
    assert suite.attrib == {"name": "hangdrill", "tests": "3", "failures": "1", "errors": "1", "time": "29.400"}


def test_fail_is_a_failure_and_unknown_an_error_and_nothing_is_skipped():
    outcomes = [[child.tag for child in case if child.tag != "properties"] for case in cases()]
    assert outcomes == [[], ["failure"], ["error"]]


def test_case_is_named_by_group_and_scenario():
    assert [(case.get("classname"), case.get("name")) for case in cases()] == [
        ("hangdrill.quick", "ddp-hold"),
        ("hangdrill.delivery", "native-gloo"),
        ("hangdrill.faults", "pipeline-hold-r1"),
    ]


def test_message_is_the_decisive_check_and_the_text_has_the_mend():
    failure = cases()[1].find("failure")
    assert failure.get("message").startswith("every-rank-dumped: 0 of 4 dumps arrived")
    assert failure.get("type") == "hangdrill.fail"
    assert '(mend: use trigger = "collector")' in failure.text


def test_properties_have_verdict_culprits_and_timings():
    found = {item.get("name"): item.get("value") for item in cases()[0].findall("properties/property")}
    assert {key: found[key] for key in ("verdict", "culprits", "expected_culprits", "run_dir", "noticed_s")} == {
        "verdict": "pass",
        "culprits": "1",
        "expected_culprits": "1",
        "run_dir": "/out/quick/ddp-hold",
        "noticed_s": "8.200",
    }


def test_control_characters_of_a_job_do_not_break_the_xml():
    result = mutate(result_of(unknown_run()), sentence="bad \x00\x1b[31m byte \ud800", checks=())
    case = Xml.fromstring(junit_xml(summary_of([result], out_dir="/out"))).find("testsuite/testcase")
    assert case.find("error").get("message") == "bad ??[31m byte ?"


def test_summary_merges_verdicts_and_reads_back_equal():
    summary = a_summary()
    assert (summary.verdict, summary.passed, summary.failed, summary.unknown) == (Verdict.FAIL, 1, 1, 1)
    assert msgspec.json.decode(summary_json(summary), type=Summary) == summary
    assert summary_of([], out_dir="/out").verdict is Verdict.UNKNOWN
