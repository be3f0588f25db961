#!/usr/bin/env bash
# Names everything at once that is missing to run the tests, and how to get it: scripts/check-prereqs.sh [MODE], a mode of
# test.sh.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

missing=()
need() { missing+=("  - $1"); }

# go_at_least WANT HAVE compares versions such as 1.26.0 and go1.27rc1.
go_at_least() {
	awk -v want="$1" -v have="$2" 'BEGIN {
		sub(/^.*go/, "", have)
		split(want, w, "."); split(have, h, /[^0-9]/)
		for (i = 1; i <= 2; i++) if (h[i] + 0 != w[i] + 0) exit h[i] + 0 < w[i] + 0
	}'
}

want=$(awk '$1 == "go" { print $2 }' go.mod)
cc=${CC:-cc}
if ! command -v go >/dev/null; then
	need "Go $want or later: https://go.dev/dl/"
else
	# Asked in the module, where an older Go fetches the toolchain that go.mod names, unless GOTOOLCHAIN=local.
	have=$(go env GOVERSION 2>/dev/null) || have=$(GOTOOLCHAIN=local go version | awk '{ print $3 }')
	go_at_least "$want" "$have" ||
		need "Go $want or later (this is ${have#go}): https://go.dev/dl/, or let this one fetch it with GOTOOLCHAIN=auto"
	cc=$(cd / && go env CC)
	[[ ${CGO_ENABLED:-1} != 0 ]] || need "cgo, for the race detector and adapters/glide: unset CGO_ENABLED"
fi
# Compiled, not just looked for: a compiler without the C library's headers is as good as none.
# shellcheck disable=SC2086 # CC may hold flags
printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' | $cc -x c -c -o /dev/null - >/dev/null 2>&1 ||
	need "a C compiler, for the race detector and adapters/glide ($cc does not compile): on Debian apt-get install gcc libc6-dev, on macOS xcode-select --install"
command -v git >/dev/null || need "git: on Debian apt-get install git"
command -v make >/dev/null || need "make: on Debian apt-get install make"
[[ ${1:-full} != full ]] || command -v spin >/dev/null || [[ $(id -u) == 0 && -n $(command -v apt-get) ]] ||
	need "spin, which checks the model of the protocol: on Debian apt-get install spin, on macOS brew install spin"

if ! engine_runs && ! servers_named && ! command -v valkey-server >/dev/null && ! command -v redis-server >/dev/null; then
	if ! command -v docker >/dev/null; then
		engine="install Docker, https://docs.docker.com/engine/install/ (on Debian apt-get install docker.io)"
	elif [[ $(docker version 2>&1) == *"permission denied"* ]]; then
		engine="Docker is there, but this user may not use it: join the group docker (sudo usermod -aG docker \"\$USER\", then log in again)"
	else
		engine="Docker is installed, but its daemon does not answer: start it (sudo systemctl start docker, or sudo dockerd >dockerd.log 2>&1 &)"
	fi
	need "a container engine: $engine
    or valkey-server or redis-server on PATH,
    or servers named in the environment: LEASECACHE_ADDR_<NAME>=host:port or LEASECACHE_SERVER_<NAME>=/path/to/binary,
    with <NAME> such as VALKEY_9 (see scripts/images.sh)"
fi

if ((${#missing[@]} > 0)); then
	printf 'The tests cannot run. This is missing:\n' >&2
	printf '%s\n' "${missing[@]}" >&2
	exit 1
fi
