"""What a family of figures gets, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.bench.figures import Figure
from testbed.bench.torch_peer import TorchPeer


@dataclass(frozen=True, slots=True)
class Bench:
    """How to measure. `folder` is scratch space that is removed afterwards; `say` is for people who wait."""

    quick: bool
    torch: TorchPeer | None
    folder: Path
    say: Callable[[str], None]

    def scratch(self, name: str) -> Path:
        """A path in the scratch folder that does not exist yet."""
        number = 1
        while (path := self.folder / f"{name}-{number}").exists():
            number += 1
        return path


@dataclass(frozen=True, slots=True)
class Family:
    """Figures that are measured together. `assumptions` are printed above them."""

    name: str
    title: str
    measure: Callable[[Bench], list[Figure]]
    assumptions: Sequence[str] = ()
