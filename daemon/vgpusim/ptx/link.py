"""Names across the texts of a module, as a linker resolves them: .visible symbols by name, .weak and .common ones give
way, all others belong to their text and get another name where two texts use the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vgpusim.ptx.error import PtxError
from vgpusim.ptx.text import PtxText


@dataclass(slots=True)
class Names:
    """`scopes[i]` maps what text i declares to names of the module; `owners` maps a visible name to the text whose
    definition counts."""

    scopes: list[dict[str, str]]
    owners: dict[str, int]

    def owns(self, index: int, name: str) -> bool:
        """Whether a definition of the module's `name` in text `index` would be the one that counts."""
        return self.owners.get(name, index) == index


def resolve(texts: Sequence[PtxText]) -> Names:
    """Raises PtxError (INVALID_PTX) for symbols defined twice. Those defined nowhere are judged in undefined.py."""
    owners = _owners(texts)
    users = Counter(name for text in texts for name in {**text.variables, **text.prototypes, **text.places})
    return Names([_scope(text, f"~{index}", users) for index, text in enumerate(texts)], owners)


def _definitions(text: PtxText) -> dict[str, str]:
    """Name to linkage."""
    found = {name: place.linkage for name, place in text.places.items()}
    return found | {name: decl.linkage for name, decl in text.variables.items() if decl.linkage != "extern"}


def _owners(texts: Sequence[PtxText]) -> dict[str, int]:
    owners: dict[str, int] = {}
    weak: set[str] = set()
    for index, text in enumerate(texts):
        for name, linkage in _definitions(text).items():
            gives_way = linkage in ("weak", "common")
            if not linkage or (name in owners and gives_way):
                continue
            if name in owners and name not in weak:
                raise PtxError(f"{name} is defined in two texts of the module")
            owners[name] = index
            (weak.add if gives_way else weak.discard)(name)
    return owners


def _scope(text: PtxText, suffix: str, users: Counter[str]) -> dict[str, str]:
    names = {name: name for name in (*text.variables, *text.prototypes)}
    for name, linkage in _definitions(text).items():
        own = not linkage and users[name] > 1
        if own and name in text.places and text.places[name].is_entry:
            raise PtxError(f"kernel {name} is defined in two texts of the module")
        names[name] = name + suffix if own else name
    return names
