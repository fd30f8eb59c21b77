"""Names of C functions follow docs/glossary.md: one verb for one concept."""

import ast
import re

from tests.house.rooms import ROOT, read

# Use instead: ref, unref; create, destroy; acquire, release; add, remove; set, reset.
NOT_VERBS = re.compile(r"_(give|keep|drop|retire|settle|forget|note|let_go)(_|$)")


def test_prototypes_use_the_glossarys_verbs() -> None:
    assert [name for name in sorted(read().promises) if NOT_VERBS.search(name)] == []


def test_a_verb_of_another_kind_is_found() -> None:
    assert NOT_VERBS.search("vgs_range_drop_all")
    assert NOT_VERBS.search("vgs_limit_keep")
    assert not NOT_VERBS.search("vgs_notice_print")


def test_the_generator_and_the_c_code_single_out_no_function() -> None:
    """What sets a function apart stands in its entry (protocol/spec), not in a list of names elsewhere."""
    for path in sorted((ROOT / "protocol/gen").glob("*.py")):
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert [text for text in texts if isinstance(text, str) and re.fullmatch(r"cu[A-Z]\w*", text)] == [], path.name
    for folder in ("shim/base", "shim/channel", "shim/cuda", "daemon/executor"):
        for path in sorted((ROOT / folder).glob("*.[ch]")):
            code = path.read_text()
            assert re.findall(r'\bVGW_OP_cu\w+|strn?cmp\([^;]*"cu[A-Z]\w*"', code) == [], path.name
