"""C files depend on each other in no circle, and a function is defined in the C file with its header's name."""

import re

from tests.house.rooms import ROOT, House, circles, declared, misplaced, read

# Headers that declare functions of several files, by what that is for.
FACADES = {
    "vgx_sim": "all that the executor may know of the simulator: it includes none of the device's own headers, whose"
    " structures it must not reach into (ARCHITECTURE.md: the executor and the simulator are two rooms)",
}


def test_no_files_form_a_circle() -> None:
    found = circles(read().edges())
    assert not found, f"`python tests/house/rooms.py` says why: {found}"


def test_a_function_is_defined_in_the_file_of_its_header() -> None:
    found = {name: places for name, places in misplaced(read()).items() if places[0] not in FACADES}
    assert not found, f"declared in one file's header, defined in another file: {sorted(found.items())}"


def test_a_facade_stands_for_files_of_its_own_folder() -> None:
    house = read()
    facades = {name: places for name, places in misplaced(house).items() if places[0] in FACADES}
    assert {header for header, _ in facades.values()} == set(FACADES), "no longer a facade: take it out of the list"
    for name, (header, definer) in facades.items():
        assert house.folder[definer] == house.folder[header], name


def test_no_other_room_includes_what_a_facade_hides() -> None:
    """The executor includes the simulator's one header, and none of the headers behind it."""
    own = {path.stem for path in (ROOT / "daemon/vgpusim/device").glob("*.h")}
    for path in sorted((ROOT / "daemon/executor").glob("*.[ch]")):
        named = set(re.findall(r'#include "(\w+)\.h"', path.read_text()))
        assert not named & (own - set(FACADES)), path.name


def test_reads_enough_to_judge() -> None:
    """The checks above must not pass because the patterns no longer match the sources."""
    house = read()
    assert len(house.promises) > 500
    assert sum(map(len, house.edges().values())) > 400
    assert house.owner["vgs_session_call"] == "vgs_session"
    assert house.owner["vgs_life"] == "vgs_session"  # a variable


def test_a_circle_is_found() -> None:
    house = House()
    for stem, names in {"a": {"g"}, "b": {"h"}, "c": {"f"}, "d": {"f"}}.items():
        house.names[stem] = names
    house.owner = {"f": "a", "g": "b", "h": "c"}
    assert circles(house.edges()) == [["a", "b", "c"]]


def test_definitions_and_prototypes_are_told_apart() -> None:
    code = (
        "struct x {\n  int a;\n};\nstatic int hidden(void) {\n}\n"
        "int here(int a,\n         int b) {\n  there(a);\n}\n"
        "_Noreturn void gone(void) __attribute__((cold));\n"
        "typedef void (*hook)(int);\nextern int (*pointer)(void);\n"
    )
    assert declared(code) == ({"here"}, {"gone"})
