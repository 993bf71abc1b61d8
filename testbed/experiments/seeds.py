"""What several seeds say together: each seed has a baseline of its own, and a row's delta is to that one. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.experiments.one_process import IN_PROCESS

SCHEMA = "gradstorm.experiments-seeds/1"
_CONDITIONS = {
    "no decay": "",
    "1 ms decay": "-decay-1ms",
    "2 ms decay": "-decay-2ms",
    "jitter": "-decay-jitter-reorder",
}
Document = Mapping[str, Any]


def document_of(documents: Mapping[int, Document]) -> dict[str, Any]:
    """`documents`: seed -> what `summary.document_of` made. Rows that every seed has, in the order of the first."""
    seeds = sorted(documents)
    deltas = {seed: {row["name"]: row["delta_to_baseline"] for row in documents[seed]["rows"]} for seed in seeds}
    bytes_of = {row["name"]: row["payload_bytes"] for row in documents[seeds[0]]["rows"]}
    names = [name for name in bytes_of if all(deltas[seed].get(name) is not None for seed in seeds)]
    rows = [
        {
            "name": name, "payload_bytes": bytes_of[name],
            "deltas": [deltas[seed][name] for seed in seeds],
            **_spread([deltas[seed][name] for seed in seeds]),
            "verdict": _worst([_verdict(documents[seed], name) for seed in seeds]),
        }
        for name in names
    ]  # fmt: skip
    by_name = {row["name"]: row for row in rows}
    return {
        "schema": SCHEMA,
        "engine": documents[seeds[0]]["engine"],
        "seeds": seeds,
        "rows": rows,
        "findings": findings(by_name),
        "pareto": pareto(rows),
    }


def findings(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Paired differences over the seeds; a comparison whose rows are not there is left out."""
    found = []

    def compare(what: str, worse: str, better: str) -> None:
        if worse in rows and better in rows:
            gaps = [a - b for a, b in zip(rows[worse]["deltas"], rows[better]["deltas"], strict=True)]
            wins = sum(gap > 0 for gap in gaps)
            found.append({"claim": what, "rows": [worse, better], "gaps": gaps, **_spread(gaps), "seeds_where": wins})

    for bits in (4, 6, 8, 12):
        compare(f"keeping 25 % instead of 50 % costs, at {bits} bits", f"top25-{bits}bit", f"top50-{bits}bit")
    for keep in (25, 50):
        for fewer, more in ((4, 6), (6, 8), (8, 12)):
            what = f"{fewer} bits instead of {more} cost, keeping {keep} %"
            compare(what, f"top{keep}-{fewer}bit", f"top{keep}-{more}bit")
    for condition, suffix in _CONDITIONS.items():
        compare(f"4 bits instead of 6 cost, {condition}", f"top50-4bit{suffix}", f"top50-6bit{suffix}")
    for point in ("top50-6bit", "top50-4bit"):
        compare(f"{point}: 1 ms decay costs", f"{point}-decay-1ms", point)
        compare(f"{point}: 2 ms decay costs more than 1 ms", f"{point}-decay-2ms", f"{point}-decay-1ms")
    return found


def pareto(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of the rows without delay: those that no other one beats in bytes and in loss alike, by bytes."""
    plain = [row for row in rows if "decay" not in row["name"] and row["name"].startswith("top")]
    kept = [row for row in plain if not any(_beats(other, row) for other in plain)]
    return [row["name"] for row in sorted(kept, key=lambda row: row["payload_bytes"])]


def _beats(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    mine, its = ((row["payload_bytes"], row["mean"]) for row in (one, other))
    return mine != its and mine[0] <= its[0] and mine[1] <= its[1]


def csv_of(document: Document) -> str:
    """One line for each row, a column for each seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "payload_bytes", "mean", "sd", *(f"seed {seed}" for seed in document["seeds"]), "verdict"])
    for row in document["rows"]:
        numbers = [repr(one) for one in (row["mean"], row["sd"], *row["deltas"])]
        writer.writerow([row["name"], row["payload_bytes"], *numbers, row["verdict"]])
    return text.getvalue()


def table_of(document: Document) -> list[str]:
    """Markdown: rows, then what the pairs say."""
    count = len(document["seeds"])
    lines = [
        f"| row | bytes | delta to baseline, mean of {count} seeds | sd | least | most |",
        "|---|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        cells = [f"{one:+.4f}" for one in (row["mean"], row["sd"], min(row["deltas"]), max(row["deltas"]))]
        lines.append(f"| {row['name']} | {row['payload_bytes']} | {' | '.join(cells)} |")
    lines += ["", f"Verdicts: {_verdicts(document)}."]
    lines += ["", "| pair, seed by seed | mean | sd | seeds where it costs |", "|---|---|---|---|"]
    for item in document["findings"]:
        lines.append(f"| {item['claim']} | {item['mean']:+.4f} | {item['sd']:.4f} | {item['seeds_where']} of {count} |")
    return [*lines, "", f"Beaten by no other row in bytes and loss: {', '.join(document['pareto'])}."]


def _spread(values: Sequence[float]) -> dict[str, float]:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return {"mean": mean, "sd": math.sqrt(variance)}


def _verdict(document: Document, name: str) -> str:
    return next(str(row["verdict"]) for row in document["rows"] if row["name"] == name)


def _verdicts(document: Document) -> str:
    counts = Counter(str(row["verdict"]) for row in document["rows"])
    how = " (computed in one process, nothing was verified)" if document["engine"] == IN_PROCESS else ""
    return ", ".join(f"{count} rows {verdict}" for verdict, count in sorted(counts.items())) + how


def _worst(verdicts: Sequence[str]) -> str:
    return next((one for one in ("violated", "unknown") if one in verdicts), "pass")
