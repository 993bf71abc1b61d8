#!/usr/bin/env bash
# Pins and hashes requirements*.in into requirements*.lock, for every platform, without addresses.
# Uses `uv` from the PATH, or fetches it into a throwaway environment.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    "${PYTHON:-python3}" -m venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
    uv=$scratch/venv/bin/uv
fi

for name in requirements requirements-proto; do
    # The old lock is read too: what is pinned stays pinned unless `make lock UPGRADE=--upgrade` says otherwise.
    cp "$name.lock" "$scratch/out.lock" 2>/dev/null || true
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header ${UPGRADE:-} \
        "$name.in" --output-file "$scratch/out.lock" >/dev/null
    {
        echo "# Pinned and hashed from $name.in by 'make lock'. Do not edit by hand."
        cat "$scratch/out.lock"
    } >"$scratch/final.lock"
    if grep -nE 'https?://|--(extra-)?index-url|--find-links' "$scratch/final.lock"; then
        echo "lock: $name.lock would contain an address; refused" >&2
        exit 1
    fi
    cp "$scratch/final.lock" "$name.lock"
    rm -f "$scratch/out.lock"
done
