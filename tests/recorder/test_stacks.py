"""The stacks of a rank, as faulthandler and py-spy print them."""

import pytest

from hangdrill.model.dump import Frame
from hangdrill.recorder.stacks import main_thread_frames

FAULTHANDLER = """Current thread 0x00007f80897fa6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f80910286c0 (most recent call first):
  File "/env/threading.py", line 982 in run

Thread 0x00007f8148e83b80 (most recent call first):
  File "/env/torch/_tensor.py", line 623 in backward
  File "/home/user/train.py", line 17 in main
  File "/home/user/train.py", line 23 in <module>
"""
PY_SPY = """Process 2804: python -u -m hangdrill.rank train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 2804 (idle): "MainThread"
    Tensor.backward (torch/_tensor.py:623)
    main (train.py:17)
    <module> (train.py:23)
Thread 2977 (idle): "signals"
    Thread.run (threading.py:982)
"""


def test_main_thread_of_faulthandler_is_the_one_that_runs_a_module():
    assert main_thread_frames(FAULTHANDLER) == (
        Frame(filename="/env/torch/_tensor.py", line=623, name="backward"),
        Frame(filename="/home/user/train.py", line=17, name="main"),
        Frame(filename="/home/user/train.py", line=23, name="<module>"),
    )


def test_main_thread_of_py_spy_is_not_the_last_one():
    assert [frame.line for frame in main_thread_frames(PY_SPY)] == [623, 17, 23]


@pytest.mark.parametrize(
    "text", ["", "no answer", "Thread 1 (most recent call first):\n  <no Python frame>\n", "\0" * 99]
)
def test_text_without_frames_gives_none(text):
    assert main_thread_frames(text) == ()


def test_without_a_module_the_last_thread_counts():
    text = FAULTHANDLER.replace("<module>", "spawned")
    assert main_thread_frames(text)[0].line == 623
