#!/usr/bin/env bash
# proto.sh generate   rewrites services/wire/*_pb2*.py(i) from proto/gradstorm/v1/*.proto
# proto.sh check      fails if that would change anything
# `-Iservices/wire=proto/gradstorm/v1` shows protoc the files as services/wire/NAME.proto, so that what it
# writes imports services.wire.NAME_pb2: absolute and correct, with nothing to patch afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=$1
bin=.venv-proto/bin
wire=services/wire

generate_into() {
    local files=()
    for file in proto/gradstorm/v1/*.proto; do
        files+=("$wire/$(basename "$file")")
    done
    PATH="$PWD/$bin:$PATH" "$bin/python" -m grpc_tools.protoc "-I$wire=proto/gradstorm/v1" \
        "--python_out=$1" "--mypy_out=quiet:$1" "--grpc_python_out=$1" "--mypy_grpc_out=quiet:$1" "${files[@]}"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/old/$wire" "$scratch/new"
generate_into "$scratch/new"

case $mode in
generate)
    rm -f "$wire"/*_pb2*.py "$wire"/*_pb2*.pyi
    cp "$scratch/new/$wire"/* "$wire/"
    ;;
check)
    cp "$wire"/*_pb2*.py "$wire"/*_pb2*.pyi "$scratch/old/$wire/" 2>/dev/null || true
    if ! diff -r "$scratch/old/$wire" "$scratch/new/$wire" >"$scratch/diff"; then
        head -20 "$scratch/diff"
        echo "proto: generated code is stale; run 'make proto'" >&2
        exit 1
    fi
    ;;
*)
    echo "usage: proto.sh generate|check" >&2
    exit 2
    ;;
esac
