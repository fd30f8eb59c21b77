"""One PTX text: an index of its functions, found without reading bodies, and of its module-scope declarations."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vgpusim.ptx.declaration import Declaration, parse_declaration
from vgpusim.ptx.error import NOT_SUPPORTED, UNSUPPORTED_PTX_VERSION, PtxError
from vgpusim.ptx.isa import KNOWN_VERSION
from vgpusim.ptx.lexer import Lines, Tokens

_TOP = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{};]', re.DOTALL)
_BRACES = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{}]', re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEADER = re.compile(
    r"\s*\.version\s+(\d{1,4})\.(\d{1,4})\s+\.target\s+(\w+(?:\s*,\s*\w+)*)\s*(?:\.address_size\s+(\d+))?(?=\s|$)"
)
_LINE_DIRECTIVE = re.compile(r"\s*\.(?:file\b[^\n]*|loc\b[^\n]*|version\b[^\n]*|target\b[^\n]*|address_size\b[^\n]*)")
_FILE = re.compile(r'\.file\s+(\d{1,9})\s+"([^"\n]{1,4096})"')
_FUNCTION = re.compile(r"\.(entry|func)\b")
_FUNCTION_NAME = re.compile(r"\.entry\s+([\w$%]+)|\.func\s*(?:\.\w+\s*)*(?:\([^)]*\)\s*)?([\w$%]+)")
_LINKAGE = re.compile(r"\.(visible|weak|common|extern)\b")
_REGISTER_LIMIT = re.compile(r'\s*\.pragma\s+"vgpu_maxnreg (\d{1,9})"\s*$')  # shim/compiler, in the place of an option
_BODY_VARIABLE = re.compile(r"(?<![\w.])\.(?:global|const)\b")  # the directive: ld.global follows a letter


@dataclass(slots=True)
class Place:
    """Where a function with a body stands in the text, in characters."""

    name: str  # in its header; the index lists an alias under another name
    start: int  # of the header
    body: int  # of the opening brace
    end: int  # after the closing brace
    is_entry: bool
    linkage: str  # "", "visible", "weak" or "extern"


class PtxText:
    """The index. Nothing is resolved: names are as written.

    Raises:
        PtxError: INVALID_PTX for malformed text, NOT_SUPPORTED for 32-bit addresses, UNSUPPORTED_PTX_VERSION for either
            in a text of a PTX ISA above KNOWN_VERSION.
    """

    def __init__(self, text: str) -> None:
        self.text = text.rstrip("\0")
        self.lines = Lines(self.text)
        self.version: tuple[int, int] = (0, 0)
        self.target = ""
        self.places: dict[str, Place] = {}  # in order
        self.prototypes: dict[str, str] = {}  # functions declared without a body: their linkage
        self.variables: dict[str, Declaration] = {}  # .global, .const and .shared
        self.register_limit: int | None = None  # of kernels that declare none
        self._aliases: dict[str, str] = {}
        self.files = {int(m[1]): m[2] for m in _FILE.finditer(self.text)}  # by number
        try:
            self._read()
        except PtxError as error:
            raise self.judged(error) from error

    def judged(self, error: PtxError) -> PtxError:
        """The error; for a text of a newer PTX ISA one that names this version as the possible reason."""
        if self.version <= KNOWN_VERSION:
            return error
        version, known = (f"{major}.{minor}" for major, minor in (self.version, KNOWN_VERSION))
        return PtxError(f"{error} (PTX ISA {version} is newer than {known})", UNSUPPORTED_PTX_VERSION)

    def _read(self) -> None:
        self._read_header()
        self._index()
        for alias, target in self._aliases.items():
            if target not in self.places or alias in self.places:
                raise PtxError(f".alias {alias}: {target} is not a function of this module")
            found = self.places[target]
            linkage = self.prototypes.get(alias, "")
            self.places[alias] = Place(found.name, found.start, found.body, found.end, found.is_entry, linkage)

    def declares_variables(self, place: Place) -> bool:
        """Whether a body may declare .global or .const variables: a search, cheaper than to parse it."""
        return _BODY_VARIABLE.search(self.text, place.body, place.end) is not None

    def _read_header(self) -> None:
        head = _HEADER.match(_COMMENT.sub(" ", self.text[: 64 << 10]))
        if head is None:
            raise PtxError("no .version and .target at the start")
        self.version = (int(head[1]), int(head[2]))
        self.target = head[3].split(",")[0].strip()
        if not re.fullmatch(r"sm_\d+[af]?", self.target):
            raise PtxError(f"unknown target {self.target}")
        if head[4] is None and self.version > KNOWN_VERSION:
            raise PtxError("no .address_size at the start")
        if (head[4] or "64") != "64":  # not declared before PTX 2.3; current drivers support 64 alone
            raise PtxError("only .address_size 64 is supported", NOT_SUPPORTED)

    def _index(self) -> None:
        text, start, place, depth = self.text, 0, 0, 0
        while True:
            found = _TOP.search(text, place)
            if found is None:
                break
            place = found.end()
            mark = found.group()
            if mark == "{" and depth == 0:
                header = _COMMENT.sub(" ", text[start : found.start()])
                if _FUNCTION.search(header):
                    place = self._function_place(start, found.start(), header)
                    start = place
                    continue
                if ".section" in header:
                    start = place = self._matching(found.start())
                    continue
            if mark == "{":
                depth += 1
            elif mark == "}":
                depth -= 1
                if depth < 0:
                    raise Tokens(text, found.start(), found.end(), self.lines).error("unexpected `}`")
            elif mark == ";" and depth == 0:
                self._statement(start, found.start())
                start = place
        rest = _LINE_DIRECTIVE.sub("", _COMMENT.sub(" ", text[start:])).strip()
        if depth or rest:
            raise PtxError(f"unexpected end after `{rest[:40]}`")

    def _matching(self, brace: int) -> int:
        """The place after the brace that closes the one at `brace`."""
        depth, place = 0, brace
        while True:
            found = _BRACES.search(self.text, place)
            if found is None:
                raise PtxError("unbalanced braces")
            place = found.end()
            depth += {"{": 1, "}": -1}.get(found.group(), 0)
            if depth == 0:
                return place

    def _function_place(self, start: int, body: int, header: str) -> int:
        named = _FUNCTION_NAME.search(header)
        if named is None:
            raise PtxError("function without a name")
        name = named[1] or named[2]
        end = self._matching(body)
        if name in self.places:
            raise PtxError(f"{name} is defined twice")
        self.places[name] = Place(name, start, body, end, named[1] is not None, _linkage(header))
        return end

    def _statement(self, start: int, end: int) -> None:
        statement = _COMMENT.sub(" ", self.text[start:end])
        if _FUNCTION.search(statement):
            named = _FUNCTION_NAME.search(statement)
            if named is not None:
                self.prototypes[named[1] or named[2]] = _linkage(statement)
            return
        tokens = Tokens(self.text, start, end, self.lines)
        while tokens.peek in (".version", ".target", ".address_size", ".file", ".loc"):
            line = tokens.line
            while tokens.peek and tokens.line == line:
                tokens.take()
        if not tokens.peek or tokens.peek == ".pragma":
            if limit := _REGISTER_LIMIT.match(_COMMENT.sub(" ", self.text[start:end])):
                self.register_limit = int(limit[1])
            return
        if tokens.accept(".alias"):
            alias = tokens.name()
            tokens.expect(",")
            self._aliases[alias] = tokens.name()
        else:
            for decl in parse_declaration(tokens):
                self._declare(decl, tokens)
        if tokens.peek:
            raise tokens.error(f"unexpected `{tokens.peek}`")

    def _declare(self, decl: Declaration, tokens: Tokens) -> None:
        if decl.space not in ("global", "const", "shared"):
            raise tokens.error(f".{decl.space} at module scope")
        known = self.variables.get(decl.name)
        if known is None or known.linkage == "extern":  # an .extern declaration may come before the definition
            self.variables[decl.name] = decl
        elif decl.linkage != "extern":
            raise tokens.error(f"{decl.name} is declared twice")


def _linkage(header: str) -> str:
    found = _LINKAGE.search(header)
    return found[1] if found else ""
