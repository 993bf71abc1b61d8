#!/usr/bin/env bash
# Pins and hashes requirements*.in, and the run-time part alone, into requirements*.lock: for every platform,
# without addresses.
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

pin() { # pin SOURCE LOCK KNOWN [OPTION...]: pins what SOURCE asks for; a version that KNOWN pins already is kept
    local source=$1 lock=$2 known=$3
    shift 3
    rm -f "$scratch/out.lock"
    cp "$known" "$scratch/out.lock" 2>/dev/null || true
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header "$@" \
        "$source" --output-file "$scratch/out.lock" >/dev/null
    {
        echo "# Pinned and hashed from $source by 'make lock'. Do not edit by hand."
        cat "$scratch/out.lock"
    } >"$scratch/final.lock"
    if grep -nE 'https?://|--(extra-)?index-url|--find-links' "$scratch/final.lock"; then
        echo "lock: $lock would contain an address; refused" >&2
        exit 1
    fi
    cp "$scratch/final.lock" "$lock"
}

# What is pinned stays pinned unless `make lock UPGRADE=--upgrade` says otherwise.
pin requirements.in requirements.lock requirements.lock ${UPGRADE:-}
pin requirements-proto.in requirements-proto.lock requirements-proto.lock ${UPGRADE:-}
# The container image: the same versions as in requirements.lock, without the tools of developers.
pin pyproject.toml requirements-runtime.lock requirements.lock
pin requirements-build.in requirements-build.lock requirements.lock
