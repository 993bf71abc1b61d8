"""The sizes that everything is measured at: softmax regressions whose float64 parameters fill 288 B to 64 MB."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """A model by its shape. `sample_count` is how many samples a run of it trains on."""

    label: str
    feature_count: int
    class_count: int
    sample_count: int

    @property
    def elements(self) -> int:
        """Parameters, float64 each."""
        return (self.feature_count + 1) * self.class_count

    @property
    def size_bytes(self) -> int:
        """Of one array of them."""
        return 8 * self.elements


B288 = Size("288B", 8, 4, 1280)
KB33 = Size("33KB", 64, 64, 1280)
KB512 = Size("512KB", 640, 100, 1280)
MB8 = Size("8MB", 10_000, 100, 256)
MB64 = Size("64MB", 80_000, 100, 256)

TRAINED = (B288, KB33, KB512, MB8)
REDUCED = (B288, KB33, KB512, MB8, MB64)
