"""A user's .csv: numbers, comma-separated, one row per sample; the header line is optional.

The class is the column named `label`, or else the last one. A first line without any number in it is a header, and
so is one that has a cell `label`.
"""

import csv
import math
from collections.abc import Sequence

import numpy as np

from training.errors import DataError
from training.raw_data import RawData, require_trainable, whole_labels

_LABEL = "label"


def parse_csv(name: str, content: bytes) -> RawData:
    """Parse the content of the file called `name`. Raises DataError naming file, line and column."""
    rows = _rows(name, content)
    header = _header(rows)
    body = rows[1:] if header else rows
    if not body:
        raise DataError(f"{name} has no row of data; give one line per sample")
    width = len(rows[0][1])
    if width < 2:
        raise DataError(f"{name} has one column only; is the separator a comma? It needs features and a label")
    label_column = header.index(_LABEL) if header and _LABEL in header else width - 1
    table = np.array([_numbers(name, line, cells, width, header, label_column) for line, cells in body])

    def row_name(row: int) -> str:
        return f"line {body[row][0]}"

    features = np.ascontiguousarray(np.delete(table, label_column, axis=1))
    labels = whole_labels(name, table[:, label_column], row_name)
    require_trainable(name, features, labels)
    return RawData(features, labels)


def _rows(name: str, content: bytes) -> list[tuple[int, list[str]]]:
    """Non-blank rows with their line numbers, counted from 1."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: not UTF-8 text ({error.reason}); save it as UTF-8 CSV") from error
    if "\0" in text:
        raise DataError(f"{name} holds zero bytes and is no text; if it is binary, save it as .npz")
    reader = csv.reader(text.splitlines(keepends=True))
    try:
        rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {error}; check the quotes there") from error
    rows = [(line, cells) for line, cells in rows if any(cells)]
    if not rows:
        raise DataError(f"{name} is empty; give one line per sample")
    return rows


def _header(rows: Sequence[tuple[int, list[str]]]) -> list[str] | None:
    cells = rows[0][1]
    named = _LABEL in cells
    return cells if named or all(_number(cell) is None for cell in cells) else None


def _number(cell: str) -> float | None:
    if "_" in cell:  # float() takes 1_000, which no spreadsheet writes
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _numbers(
    name: str, line: int, cells: list[str], width: int, header: list[str] | None, label_column: int
) -> list[float]:
    if len(cells) != width:
        raise DataError(f"{name}, line {line}: {len(cells)} columns where the first line has {width}; make them equal")
    numbers = []
    for column, cell in enumerate(cells):
        number = _number(cell)
        if number is None or (column != label_column and not math.isfinite(number)):
            raise DataError(_complaint(name, line, column, cell, header, column == label_column))
        numbers.append(number)
    return numbers


def _complaint(name: str, line: int, column: int, cell: str, header: list[str] | None, is_label: bool) -> str:
    title = f" ({header[column]})" if header else ""
    where = f"{name}, line {line}, column {column + 1}{title}"
    if _number(cell) is not None:
        return f"{where}: {cell!r} is not a finite number; drop this row or fill the value in"
    if is_label:
        return f"{where}: the label is the text {cell!r}; replace class names by numbers 0, 1, 2, ..."
    return f"{where}: found the text {cell!r} in a number column; replace it by a number or drop the column"
