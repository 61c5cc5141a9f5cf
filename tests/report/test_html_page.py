"""The page is whole without a network, says what the story says, and nothing out of a dump can break out of it."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from html_cases import stalled, told

from hangdrill.cli import run_command
from hangdrill.report.html import page_html
from hangdrill.report.html.axis import axis_for
from hangdrill.report.story import tell_story

DATA = Path(__file__).parents[1] / "data" / "dumps" / "h200"
CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> <!-- '\" & {{ 7*7 }} @POLICY@ \u2028"
)


class Outline(HTMLParser):
    """Tags, ids, texts and the attributes that could load something."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.handlers, self.stack, self.texts = [], [], [], [], [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        names = dict(attrs)
        self.tags.append(tag)
        self.ids += [names["id"]] if "id" in names else []
        self.links += [value for name, value in attrs if name in {"src", "href", "action", "data", "srcset"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.stack.append(names.get("id", tag))

    def handle_data(self, data):
        if self.stack:
            self.texts[self.stack[-1]] = self.texts.get(self.stack[-1], "") + data


def page_of(dumps):
    return page_html(tell_story(*told(dumps)))


def pictures_in(text):
    return json.loads(re.search(r'<script type="application/json" id="pictures">(.*?)</script>', text, re.DOTALL)[1])


def test_page_has_every_part():
    page = Outline(page_of(stalled(8, [3], lost=[5])))
    for part in ("culprits", "next", "stuck", "picture", "timeline", "missing", "pictures"):
        assert part in page.ids
    assert len(page.ids) == len(set(page.ids))
    said = "rank 3 never entered all_reduce #55 of default_pg; ranks 0, 1, 2, 4, 6, 7 waited"
    assert page.texts["h1"].strip() == said


def test_page_loads_nothing():
    text = page_of(stalled(4, [1]))
    page = Outline(text)
    assert (page.links, page.handlers) == ([], [])
    assert not {"link", "iframe", "img", "object", "embed", "base", "form"} & set(page.tags)
    assert re.findall(r"https?://|//[a-z]+\.|@import|url\(", text) == []


def test_a_page_without_a_hang_has_no_stuck_ranks():
    page = Outline(page_html(tell_story(*told([one for one in stalled(4, []) if one.rank < 0]))))
    assert "stuck" not in page.ids
    assert "missing" in page.ids


def hostile_dumps():
    return [
        msgspec.structs.replace(
            one,
            groups=(msgspec.structs.replace(one.groups[0], desc=HOSTILE),),
            operations=tuple(
                msgspec.structs.replace(
                    operation,
                    group_desc=HOSTILE,
                    name=HOSTILE,
                    frames=tuple(
                        msgspec.structs.replace(frame, filename=HOSTILE, name=HOSTILE) for frame in operation.frames
                    ),
                )
                for operation in one.operations[-3:]
            ),
        )
        for one in stalled(3, [1])
    ]


def test_hostile_text_stays_text():
    tame, text = Outline(page_of(stalled(3, [1]))), page_of(hostile_dumps())
    page = Outline(text)
    assert page.tags.count("script") == tame.tags.count("script") == 2
    assert (page.handlers, page.links) == ([], [])
    assert "img" not in page.tags
    assert "document.title='owned'</script>" not in text
    assert "<img" in page.texts["h1"]  # as text: the reader sees what the dump says
    assert "{{ 7*7 }}" in text
    assert "<img src=x" in pictures_in(text)[0]["names"][0][1] or "<img src=x" in pictures_in(text)[0]["title"]


def test_only_the_pages_own_script_may_run():
    first, second = (page_of(dumps) for dumps in (stalled(3, [1]), hostile_dumps()))
    policies = [re.search(r'Security-Policy" content="([^"]*)"', text)[1] for text in (first, second)]
    assert policies[0] == policies[1]
    assert "default-src &#39;none&#39;" in policies[0] or "default-src 'none'" in policies[0]
    assert "sha256-" in policies[0]


def test_equal_stories_give_equal_pages():
    assert page_of(stalled(5, [1])) == page_of(list(reversed(stalled(5, [1]))))


def test_the_picture_folds_thousands_of_ranks():
    text = page_of(stalled(1024, [517], stacks=False, kept=40))
    (picture,) = pictures_in(text)
    assert [row["label"] for row in picture["rows"]] == ["rank 517", "ranks 0-516, 518-1023 (1023)"]
    assert len(text) < 200_000


def test_axis_keeps_order_and_shows_the_stall():
    axis = axis_for([-90.0, -0.01, 0.002])
    places = [axis.percent(one) for one in (-90.0, -1.0, -0.01, 0.0, 0.002)]
    assert places == sorted(places)
    assert all(0 < place < 100 for place in places)
    assert "0" in [tick.label for tick in axis.ticks]


def test_diagnose_writes_the_page_and_json_stays_json(tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert run_command(["diagnose", str(DATA / "legacy-stall"), "--html", str(page), "--json"]) == 1
    out = capsys.readouterr()
    assert json.loads(out.out)["verdict"] == "hang"
    assert str(page) in out.err
    assert "worker.py:81" in page.read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_the_machines_fault(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run_command(["diagnose", str(DATA / "legacy-stall"), "--html", str(tmp_path / "file" / "page.html")]) == 75
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_diagnosis_is_printed_though_its_page_cannot_be_written(tmp_path, capsys, more):
    words = ["diagnose", str(DATA / "legacy-stall"), *more]
    assert run_command(words) == 1
    said = capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert run_command([*words, "--html", str(tmp_path / "file" / "page.html")]) == 75
    told = capsys.readouterr()
    assert told.out == said
    assert "name another file" in told.err
    assert "page: " not in told.err


needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium to run the page's script")

DRIVE = """<script>
const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
const send = (name, x, y) => canvas.dispatchEvent(
  new PointerEvent(name, {clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true}));
canvas.setPointerCapture = () => {};
const before = canvas.clientHeight;
send("pointerdown", 40, 77); send("pointerup", 40, 77);
document.body.dataset.unfolded = (canvas.clientHeight - before) / 22;
send("pointermove", 40, 99);
document.body.dataset.row = document.getElementById("tip").textContent;
send("pointermove", 400, 99);
document.body.dataset.cell = document.getElementById("tip").textContent;
document.querySelector("button[title='zoom in']").click();
</script></body>"""


def dom_of(page, tmp_path):
    """What Chromium makes of a page, after its script has run."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@needs_chromium
@pytest.mark.parametrize("dumps", [stalled(8, [3]), hostile_dumps()], ids=["plain", "hostile"])
def test_chromium_draws_the_picture_and_runs_nothing_else(tmp_path, dumps):
    text = dom_of(page_of(dumps), tmp_path)
    drawn = Outline(text)
    # The picture's canvas, and one for each sort of cell in the legend.
    assert drawn.tags.count("canvas") >= 3
    assert drawn.tags.count("script") == 2
    assert drawn.texts["title"] != "owned"
    assert re.search(r'<canvas[^>]*style="height: \d+px;"', text)


@needs_chromium
def test_chromium_lets_no_script_run_that_is_not_the_pages_own(tmp_path):
    """The last line of defence: as if something had broken out after all. Without the policy the same script runs."""
    page = page_of(stalled(3, [1])).replace("</body>", "<script>document.title='owned'</script></body>")
    assert Outline(dom_of(page, tmp_path)).texts["title"] != "owned"
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert "<title>owned</title>" in dom_of(bare, tmp_path)


@needs_chromium
def test_chromium_unfolds_a_row_and_says_what_is_under_the_pointer(tmp_path):
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page_of(stalled(8, [3])))
    text = dom_of(page.replace("</body>", DRIVE), tmp_path)
    assert 'data-unfolded="7"' in text
    assert 'data-row="rank 0: waiting"' in text
    assert re.search(r'data-cell="rank 0: all_reduce #\d+\ncompleted"', text)
