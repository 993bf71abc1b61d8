"""What messages and facts share: how arrays are typed, and how a member is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Member:
    worker: int
    incarnation: int
    address: str = ""
