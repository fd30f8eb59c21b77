"""PTX text to tokens."""

from __future__ import annotations

import re
from bisect import bisect_right

from vgpusim.ptx.error import PtxError

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)
      | (?P<number>0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
                  |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
      | (?P<word>[.%$_A-Za-z](?:[\w$.%]|::)*)
      | (?P<string>"[^"\n]*")
      | (?P<punct>[{}()\[\],;:@!|+\-*/=<>~&^?])
    """,
    re.VERBOSE | re.DOTALL,
)

_MAX_DIGITS = 2 + 64  # of an integer: 0b and 64 of them
_NAME = re.compile(r"[A-Za-z_$%]")


class Lines:
    """Line numbers of places in a text. The newlines are found once, however many cursors ask."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newlines: list[int] | None = None

    def number(self, place: int) -> int:
        """The 1-based line that holds the character at `place`."""
        if self._newlines is None:
            self._newlines = [m.start() for m in re.finditer("\n", self._text)]
        return bisect_right(self._newlines, place - 1) + 1


class Tokens:
    """A cursor over the tokens of text[start:end]; `""` is what follows the last one. All cursors over a text share its
    `lines`."""

    def __init__(self, text: str, start: int = 0, end: int | None = None, lines: Lines | None = None) -> None:
        end = len(text) if end is None else end
        self.words: list[str] = []
        self.places: list[int] = []
        self.index = 0
        self._lines = lines or Lines(text)
        place = start
        match = _TOKEN.match
        while place < end:
            found = match(text, place, end)
            if found is None:
                self.places.append(place)
                self.index = len(self.words)
                raise PtxError(f"line {self.line}: unexpected character {text[place]!r}")
            if found.lastgroup != "skip":
                word = found.group()
                if word[0] == "." and "." in word[1:]:  # .reg.b16 is two directives
                    parts = ["." + part for part in word[1:].split(".")]
                    self.words += parts
                    self.places += [place] * len(parts)
                else:
                    self.words.append(word)
                    self.places.append(place)
            place = found.end()
        self.words.append("")
        self.places.append(end)

    @property
    def line(self) -> int:
        """1-based line of the next token."""
        return self._lines.number(self.places[self.index])

    @property
    def peek(self) -> str:
        return self.words[self.index]

    def take(self) -> str:
        word = self.words[self.index]
        if not word:
            raise self.error("unexpected end")
        self.index += 1
        return word

    def skip(self, count: int) -> None:
        for _ in range(count):
            self.take()

    def name(self) -> str:
        """Take an identifier."""
        if not _NAME.match(self.peek):
            raise self.error(f"expected a name before `{self.peek}`")
        return self.take()

    def accept(self, word: str) -> bool:
        if self.words[self.index] != word:
            return False
        self.index += 1
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.error(f"expected `{word}` before `{self.peek}`")

    def error(self, message: str) -> PtxError:
        return PtxError(f"line {self.line}: {message}")


def parse_integer(word: str) -> int | None:
    """The value of an integer literal of at most 64 bits, None when `word` is not one."""
    digits = word.rstrip("U")
    if not digits[:1].isdigit() or len(digits) > _MAX_DIGITS:
        return None
    try:
        if digits[:2] in ("0x", "0X"):
            return int(digits, 16)
        if digits[:2] in ("0b", "0B"):
            return int(digits, 2)
        if len(digits) > 1 and digits[0] == "0":
            return int(digits, 8)
        return int(digits)
    except ValueError:
        return None
