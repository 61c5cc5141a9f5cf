"""Scenarios are found by name, group, pattern, file and directory, each once and under a steady name."""

from pathlib import Path

import pytest

from hangdrill.drill.scenario_file import find_all, load, looks_like_scenario, shipped_dir
from hangdrill.model.errors import UsageError

PLAIN = 'title = "t"\n[job]\nworkload = "ddp"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a folder of scenarios of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("scenarios/ours/one.toml", "scenarios/ours/two.toml", "elsewhere/one.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PLAIN)
    return tmp_path


def names(*references: str) -> list[str]:
    return [named.name for named in find_all(references)]


def test_a_shipped_name_is_found_from_anywhere(home: Path) -> None:
    assert load("quick/ddp-hold").path == shipped_dir() / "quick/ddp-hold.toml"


@pytest.mark.parametrize("group", ["quick", "scenarios/quick", "quick/"])
def test_a_shipped_group_is_found_with_and_without_its_prefix(home: Path, group: str) -> None:
    assert "quick/ddp-hold" in names(group)
    assert all(name.startswith("quick/") for name in names(group))


def test_files_and_directories_are_named_below_scenarios(home: Path) -> None:
    assert names("scenarios/ours") == ["ours/one", "ours/two"]
    assert names("scenarios/ours/two.toml") == ["ours/two"]
    assert names("elsewhere/one.toml") == ["one"]


def test_order_is_kept_and_a_scenario_comes_once(home: Path) -> None:
    assert names("scenarios/ours/two.toml", "scenarios/ours") == ["ours/two", "ours/one"]


def test_two_files_of_one_name_are_refused(home: Path) -> None:
    (home / "third").mkdir()
    (home / "third/one.toml").write_text(PLAIN)
    with pytest.raises(UsageError, match='two scenarios have the name "one"'):
        names("elsewhere/one.toml", "third/one.toml")


def test_a_pattern_finds_cells_of_the_matrix(home: Path) -> None:
    assert names("faults/ddp-hold-r?") == ["faults/ddp-hold-r0", "faults/ddp-hold-r1", "faults/ddp-hold-r2"]


def test_a_wrong_name_is_offered_the_nearest(home: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load("quick/dpd-hold")
    assert "`quick/ddp-hold`" in caught.value.next_step


@pytest.mark.parametrize("reference", ["no.toml", "empty"])
def test_a_missing_file_and_an_empty_directory_are_refused(home: Path, reference: str) -> None:
    (home / "empty").mkdir()
    with pytest.raises(UsageError, match=reference):
        find_all([reference])


def test_one_scenario_is_wanted_and_a_group_is_many(home: Path) -> None:
    with pytest.raises(UsageError, match="where one is wanted"):
        load("quick")


def test_other_toml_files_are_no_scenarios(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("[project]\nname = 'x'\n")
    assert not looks_like_scenario(file)
    file.write_text("[job]\nbroken = \n")
    assert looks_like_scenario(file)
