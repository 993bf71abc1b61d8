"""What the rows add up to: differences to baseline and control, what was found, the table, JSON and CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = "gradstorm.experiments/1"
COLUMNS = (
    "name", "final_eval_loss", "delta_to_baseline", "delta_to_control", "payload_bytes", "density", "ratio",
    "rms_error", "max_error", "ages", "verdict",
)  # fmt: skip
_UNDISTURBED = ("delay-1ms", "delay-2ms", "jitter-reorder")
Row = Mapping[str, Any]


def document_of(engine: str, rows: Sequence[Row], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """What `gradstorm experiments --json` prints. Without a control row its loss is the baseline's, which it equals."""
    by_name = {row["name"]: row for row in rows}
    control = by_name.get("control", {}).get("final_eval_loss")
    reference = baseline["final_eval_loss"] if control is None else control
    told = [
        {
            **{key: value for key, value in row.items() if key != "digest"},
            "delta_to_baseline": _minus(row["final_eval_loss"], baseline["final_eval_loss"]),
            "delta_to_control": _minus(row["final_eval_loss"], reference),
        }
        for row in rows
    ]
    return {
        "schema": SCHEMA,
        "engine": engine,
        "baseline": {key: baseline[key] for key in ("final_eval_loss", "committed_eval_loss", "within_tolerance")},
        "control_was_run": control is not None,
        "rows": told,
        "findings": findings(by_name, baseline),
    }


def findings(rows: Mapping[str, Row], baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Claims that these rows confirm or refute; a claim whose rows are not there is left out."""
    found = []

    def claim(what: str, *names: str, holds: Any) -> None:
        losses = [rows[name]["final_eval_loss"] if name in rows else None for name in names]
        if all(loss is not None for loss in losses):
            found.append({"claim": what, "holds": bool(holds(*losses)), "rows": list(names)})

    claim("control equals the baseline digit for digit", "control", holds=lambda a: a == baseline["final_eval_loss"])
    for name in _UNDISTURBED:
        if name in rows and "control" in rows:
            same = rows[name]["evaluation_curve"] == rows["control"]["evaluation_curve"]
            found.append({"claim": f"{name}: curve identical to the control", "holds": same, "rows": [name, "control"]})
    for point in ("top50-6bit", "top50-4bit"):
        names = (point, f"{point}-decay-1ms", f"{point}-decay-2ms")
        claim(f"{point}: compression only < 1 ms decay < 2 ms decay", *names, holds=lambda a, b, c: a < b < c)
    more = ("top50-8bit", "top25-8bit", "top25-12bit")
    claim("keeping more values matters more than more bits", *more, holds=lambda a, b, c: a < min(b, c))
    return found


def must_hold(document: Mapping[str, Any]) -> bool:
    """Whether the equalities hold; the orderings are findings, not promises."""
    return all(
        item["holds"] for item in document["findings"] if "equals" in item["claim"] or "identical" in item["claim"]
    )


def csv_of(document: Mapping[str, Any]) -> str:
    """The summary as CSV, digits as in the JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in document["rows"]:
        writer.writerow([_ages(row["ages"]) if name == "ages" else _exact(row.get(name)) for name in COLUMNS])
    return text.getvalue()


def table_of(document: Mapping[str, Any]) -> list[str]:
    """The table, a Markdown one."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in document["rows"]:
        cells = [_ages(row["ages"]) if name == "ages" else _short(name, row.get(name)) for name in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        *(f"- {'holds' if item['holds'] else 'DOES NOT HOLD'}: {item['claim']}" for item in document["findings"]),
    ]
    return lines


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _ages(ages: Mapping[str, int] | None) -> str:
    return " ".join(f"{age}:{count}" for age, count in (ages or {}).items())


def _exact(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _short(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    if name.startswith("delta"):
        return "0" if value == 0.0 else f"{value:+.6f}"
    return f"{value:.6f}" if name == "final_eval_loss" else f"{value:.4g}"
