"""What a recorder's pickle stores to refer to it again: text, and stack frames. Anything else no recorder stores."""

from typing import Any

from hangdrill.recorder.pickle_walk import Damaged

__all__ = ["Memo"]


class Memo(dict[int, Any]):
    """Values by their number. told: what each said when it was stored, to be compared and never to be changed.

    Raises Damaged for a value that is neither text nor a dict of texts and integers, and for a number that is taken:
    what refers to it would mean something else from then on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[int, object] = {}

    def __setitem__(self, number: int, value: object) -> None:
        if number in self:
            raise Damaged("something is stored twice")
        if type(value) is dict and value:
            if not all(type(key) is str and type(one) in (str, int) for key, one in value.items()):
                raise Damaged("a dict is stored that is no stack frame")
            self.told[number] = tuple(value.items())
        elif type(value) is str:
            self.told[number] = value
        else:
            raise Damaged("something is stored that is no text and no stack frame")
        super().__setitem__(number, value)

    def store(self, told: dict[int, object]) -> None:
        """Store what another file has stored under these numbers, as values of this file's own."""
        for number, one in told.items():
            self[number] = dict(one) if type(one) is tuple else one

    def is_unchanged(self) -> bool:
        """Whether everything still says what it did when it was stored."""
        return all(type(one) is str or tuple(self[number].items()) == one for number, one in self.told.items())
