"""Draw comments at random, to judge the words: `python tests/house/sample_comments.py [SEED] [COUNT] [FOLDER…]`.

A comment is what one reads at once: a block of C, C++ or Python comment lines, a docstring, a sentence of a document.
The same seed draws the same places from the same tree. docs/glossary.md and CONTRIBUTING.md say what a comment must be:
clear at first reading to somebody who has never seen the project.
"""

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
C_COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*(?:\n\s*//[^\n]*)*)", re.S)
C_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
BLOCK = re.compile(r"^```.*?^```", re.S | re.M)
SENTENCE = re.compile(r"(?<=[.:?!])\s+(?=[A-Z`*])")
LEAST_WORDS = 4  # shorter comments, such as "in bytes", are not judged


def files(folders: list[str]) -> list[Path]:
    patterns = ["*.c", "*.h", "*.cc", "*.cu", "*.py", "*.md"]
    listing = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True, text=True)
    names = sorted(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())
    return [ROOT / name for name in names if not folders or name.startswith(tuple(folders))]


def of_c(text: str) -> Iterator[tuple[int, str]]:
    quiet = C_STRING.sub(lambda m: '"' + " " * (len(m.group()) - 2) + '"', text)
    for match in C_COMMENT.finditer(quiet):
        body = re.sub(r"^[ \t]*(\*|//)", "", match.group(1) or match.group(2) or "", flags=re.M)
        yield quiet.count("\n", 0, match.start()) + 1, body


def of_python(text: str) -> Iterator[tuple[int, str]]:
    lines: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != first + len(lines):
                yield first, " ".join(lines)
                lines = []
            first = first if lines else token.start[0]
            lines.append(token.string.lstrip("# "))
    if lines:
        yield first, " ".join(lines)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring


def of_markdown(text: str) -> Iterator[tuple[int, str]]:
    plain = BLOCK.sub(lambda match: "\n" * match.group().count("\n"), text)
    at = 0
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] )", plain):
        at = plain.index(block, at)
        if not block.lstrip().startswith(("|", "#", "<!--")):
            for sentence in SENTENCE.split(" ".join(block.split())):
                yield plain.count("\n", 0, at) + 1, sentence


READERS = {".py": of_python, ".md": of_markdown}


def comments(folders: list[str]) -> list[tuple[str, int, str]]:
    found = []
    for path in files(folders):
        for line, text in READERS.get(path.suffix, of_c)(path.read_text()):
            words = " ".join(text.split())
            if len(words.split()) >= LEAST_WORDS:
                found.append((str(path.relative_to(ROOT)), line, words))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("count", nargs="?", type=int, default=100)
    parser.add_argument("folders", nargs="*")
    given = parser.parse_args()
    everything = comments(given.folders)
    drawn = random.Random(given.seed).sample(everything, min(given.count, len(everything)))
    for path, line, text in sorted(drawn):
        print(f"{path}:{line}: {text}")
    print(f"{len(drawn)} of {len(everything)} comments, seed {given.seed}")


if __name__ == "__main__":
    main()
