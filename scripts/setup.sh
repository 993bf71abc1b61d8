#!/usr/bin/env bash
# setup.sh VENV LOCK [project]
# Makes VENV hold exactly what LOCK pins and, with 'project', an editable install of this checkout.
# Runs in a blink when nothing changed: VENV keeps a copy of what it was made from and is compared with it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 lock=$2 project=${3:-}

fail() {
    echo "setup: $*" >&2
    exit 3
}

new_enough() {
    command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    found=$(command -v python3 >/dev/null && python3 --version 2>&1 || echo none)
    fail "needs Python 3.11 or newer; found $found (set PYTHON=/path/to/python3)"
}

create_venv() {
    python=$(find_python) || exit $?
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv or ensurepip; install it first (Debian, Ubuntu: apt-get install python3-venv)"
    echo "setup: creating $venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

"$venv/bin/python" -c 'import pip' 2>/dev/null || create_venv

if ! cmp -s "$lock" "$venv/made-from.lock"; then
    echo "setup: installing what $lock pins"
    pip_install --require-hashes -r "$lock"
    cp "$lock" "$venv/made-from.lock"
fi

if [ -n "$project" ] && ! cmp -s pyproject.toml "$venv/made-from.pyproject"; then
    echo "setup: installing gradstorm itself, editable"
    pip_install --no-deps --no-build-isolation --editable .
    cp pyproject.toml "$venv/made-from.pyproject"
fi
