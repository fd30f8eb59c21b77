"""Names of C functions follow docs/glossary.md: one verb for one concept."""

import re

from tests.house.rooms import read

# Use instead: ref, unref; create, destroy; acquire, release; add, remove; set, reset.
NOT_VERBS = re.compile(r"_(give|keep|drop|retire|settle|forget|note|let_go)(_|$)")


def test_prototypes_use_the_glossarys_verbs() -> None:
    assert [name for name in sorted(read().promises) if NOT_VERBS.search(name)] == []


def test_a_verb_of_another_kind_is_found() -> None:
    assert NOT_VERBS.search("vgs_range_drop_all")
    assert NOT_VERBS.search("vgs_limit_keep")
    assert not NOT_VERBS.search("vgs_notice_print")
