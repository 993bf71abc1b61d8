"""experiments/README.md: the measured rows beside those of the prototype, made from the committed results alone. Pure.

python -m testbed.experiments.page     # writes it anew; a test compares it with the results
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.experiments import seeds

RESULTS, PROTOTYPE, HEAD, PAGE = "results", "prototype.csv", "README.head.md", "README.md"
_COLUMNS = (
    "row", "eval loss, sim", "local", "delta to baseline", "prototype's", "bytes forward", "in the prototype's format",
    "ratio", "density", "rms error", "ages",
)  # fmt: skip
_VALUES = 8 * 64 * 32  # of a boundary: contexts, their length, the model's width
_INDEX_BYTES = 2  # of the prototype's format, for each kept value
Rows = Mapping[str, Mapping[str, Any]]


def page_of(folder: Path) -> str:
    """The whole page. Raises OSError or KeyError when a result is missing."""
    results = {name: _json(folder / RESULTS / f"{name}.json") for name in ("sim", "local", "seeds", "diagnostic")}
    sim, local = (_by_name(results[name]["rows"]) for name in ("sim", "local"))
    prototype = {row["name"]: row for row in csv.DictReader(io.StringIO((folder / PROTOTYPE).read_text("utf-8")))}
    parts = [
        (folder / HEAD).read_text("utf-8").rstrip(),
        "## The rows",
        *_table(sim, local, prototype),
        *_same(sim, local),
        "## The order of the rows",
        *_order(sim, prototype),
        "## Five seeds",
        *seeds.table_of(results["seeds"]),
        "## Error feedback, which is not supported",
        *_diagnostic(results["diagnostic"]["rows"]),
    ]
    text = ""
    for before, part in zip(["", *parts], parts, strict=False):
        both_lists = part.startswith(("|", "- ")) and before.startswith(part[:1])
        text += part if not text else ("\n" if both_lists or not part or not before else "\n\n") + part
    return text + "\n"


def index_format_bytes(keep_percent: int, bits: int) -> int:
    """What the prototype's format takes: an index of two bytes for each kept value, the values packed, a scale."""
    kept = -(-_VALUES * keep_percent // 100)
    return kept * _INDEX_BYTES + -(-kept * bits // 8) + 4


def _table(sim: Rows, local: Rows, prototype: Rows) -> list[str]:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    for name, row in sim.items():
        there = local.get(name, {}).get("final_eval_loss")
        same = "the same" if there == row["final_eval_loss"] else f"{there:.6f}" if there is not None else "–"
        ages = " ".join(f"{age}:{count}" for age, count in row["ages"].items())
        told = prototype.get(name, {}).get("delta_to_baseline", "")
        cells = [
            name, f"{row['final_eval_loss']:.6f}", same, _delta(row["delta_to_baseline"]),
            _delta(float(told)) if told else "–", f"{row['payload_bytes']:,}", _index_bytes(name),
            f"{row['ratio']:.2f}", f"{row['density']:.2f}", f"{row['rms_error']:.3f}", ages,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _index_bytes(name: str) -> str:
    if not name.startswith("top"):
        return "–"
    keep, bits = name.removeprefix("top").split("-")[:2]
    return f"{index_format_bytes(int(keep), int(bits.removesuffix('bit'))):,}"


def _same(sim: Rows, local: Rows) -> list[str]:
    shared = [name for name in sim if name in local and sim[name].get("ages_are") != "measured"]
    same = [name for name in shared if sim[name]["evaluation_curve"] == local[name]["evaluation_curve"]]
    told = f"{len(same)} of {len(shared)} rows have the same evaluation curve in `sim` and in `local`, digit for digit;"
    return [told + " rows whose ages are measured are not compared."]


def _order(sim: Rows, prototype: Rows) -> list[str]:
    """Pairs of rows that stand the other way round here than in the prototype."""
    shared = [name for name in sim if name in prototype]
    here = {name: sim[name]["delta_to_baseline"] for name in shared}
    there = {name: float(prototype[name]["delta_to_baseline"]) for name in shared}
    turned = [
        (one, other)
        for index, one in enumerate(shared) for other in shared[index + 1 :]
        if (here[one] - here[other]) * (there[one] - there[other]) < 0
    ]  # fmt: skip
    pairs = len(shared) * (len(shared) - 1) // 2
    lines = [f"Of {pairs} pairs of rows, {pairs - len(turned)} stand in the prototype's order (or are equal in one)."]
    lines += [
        f"- {one} ({here[one]:+.3f}; prototype {there[one]:+.3f}) and {other} ({here[other]:+.3f}; {there[other]:+.3f})"
        " stand the other way round."
        for one, other in turned
    ]
    return lines


def _diagnostic(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| settings | delta with feedback | without | bytes |", "|---|---|---|---|"]
    for row in rows:
        without = row["delta_to_baseline"] - row["delta_to_no_feedback"]
        cells = [row["name"], _delta(row["delta_to_baseline"]), _delta(without), f"{row['payload_bytes']:,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _delta(value: float) -> str:
    return "0" if value == 0.0 else f"{value:+.4f}"


def _by_name(rows: Sequence[Mapping[str, Any]]) -> Rows:
    return {row["name"]: row for row in rows}


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """Write the page anew."""
    from testbed.experiments.baseline import experiments_folder

    folder = experiments_folder()
    (folder / PAGE).write_text(page_of(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
