#!/usr/bin/env bash
# Checks that what generators write is what is there: adapters/valkeygo is adapters/rueidis under other names.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

heading "generated code"
dir=$(mktemp -d "${TMPDIR:-/tmp}/leasecache-generate.XXXXXX")
trap 'rm -rf "$dir"' EXIT

(cd adapters/valkeygo && go run ./internal/gen -from ../rueidis -o "$dir")
if ! diff -r -x go.mod -x go.sum -x internal -x testdata "$dir" adapters/valkeygo; then
	printf 'check-generate: adapters/valkeygo is not what adapters/rueidis makes it: run go generate ./... in adapters/valkeygo\n' >&2
	exit 1
fi
