"""How well a process is confined: one of four levels, from its layers and from what it could still do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

BEYOND_FILES = frozenset({"network", "processes", "service_memory", "signals"})
"""What the filter must refuse."""
FILES = frozenset({"read_files", "write_files"})
"""What Landlock or the mount namespace must refuse."""


class Level(StrEnum):
    FULL = "full"
    """Landlock and the filter: nothing but its input, libraries and its own folder."""
    JAILED = "jailed"
    """A mount namespace instead of Landlock, and the filter."""
    PARTIAL = "partial"
    """The filter only: no network, no processes, but the files that its user may read."""
    WEAK = "weak"
    """No filter: limits of memory and time, and namespaces where allowed."""

    @property
    def rank(self) -> int:
        """3 for the best, 0 for the worst: the metric's value."""
        return list(reversed(Level)).index(self)


@dataclass(frozen=True, slots=True)
class Isolation:
    level: Level
    layers: Mapping[str, str] = field(default_factory=dict)
    """What each layer gave, or why it gave nothing: landlock, mounts, filter, namespaces, user."""
    possible: tuple[str, ...] = ()
    """What the self-test could do although it should not."""

    def facts(self) -> dict[str, str]:
        return {"level": self.level.value, **self.layers}

    def missing(self) -> str:
        """Why the level is not full, for people."""
        names = ("filter", "landlock")
        reasons = [f"{name}: {self.layers.get(name, 'none')}" for name in names if not has(self.layers, name)]
        if self.possible:
            reasons.append("the self-test could use: " + ", ".join(self.possible))
        return "; ".join(reasons) or "nothing"


def has(layers: Mapping[str, str], name: str) -> bool:
    """Whether the layer is in force; one that is not says `none: why`."""
    return name in layers and not layers[name].startswith("none")


def judge(layers: Mapping[str, str], possible: Collection[str]) -> Isolation:
    """A layer counts only if the self-test was refused what the layer should refuse."""
    tried = tuple(sorted(possible))
    return Isolation(_level(layers, frozenset(possible)), dict(layers), tried)


def _level(layers: Mapping[str, str], possible: frozenset[str]) -> Level:
    if not has(layers, "filter") or possible & BEYOND_FILES:
        return Level.WEAK
    if possible & FILES:
        return Level.PARTIAL
    if has(layers, "landlock"):
        return Level.FULL
    return Level.JAILED if has(layers, "mounts") else Level.PARTIAL
