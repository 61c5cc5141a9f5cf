"""Text of others made safe to print: a file's name, or a name inside a dump, must not steer the reader's terminal."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """The text with everything that does not print (escapes, newlines, lone surrogates) written as \\x1b."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
