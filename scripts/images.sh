#!/usr/bin/env bash
# Makes sure that the container engine has an image of every server that the tests run on.
#
#   scripts/images.sh [NAME...]      without names: every row of the table below
#
# For each row: an image that is already there is left alone; else the official image is pulled; else an image is built
# from Debian's packages with debootstrap (this needs root) under a name of the project's own, which servertest prefers.
#
#   LEASECACHE_IMAGE_VALKEY_9=...    use this image for the row (likewise for the other rows)
#   LEASECACHE_PULL_TIMEOUT=120      seconds that one pull may take; 0 never pulls
#   TMPDIR=/tmp                      where images are built: about 1 GiB, on a file system that allows devices
set -euo pipefail

# The rows of servertest/table.go (a test compares the two), then where Debian has that server.
# forky takes the script of sid because a debootstrap that is older than forky has no script of that name.
#
# name       official image     local image                 binary         suite     script    package
table='
valkey-9    valkey/valkey:9    leasecache-test/valkey-9    valkey-server  forky     sid       valkey-server
valkey-8.1  valkey/valkey:8.1  leasecache-test/valkey-8.1  valkey-server  trixie    trixie    valkey-server
redis-8     redis:8            leasecache-test/redis-8     redis-server   trixie    trixie    redis-server
redis-7     redis:7            leasecache-test/redis-7     redis-server   bookworm  bookworm  redis-server
'
pull_timeout=${LEASECACHE_PULL_TIMEOUT:-120}

rows() { awk 'NF' <<<"$table"; }
has_image() { docker image inspect "$1" >/dev/null 2>&1; }
override_of() { # name -> the image that the environment names for it, or nothing
	local var
	var=LEASECACHE_IMAGE_$(tr 'a-z.-' 'A-Z__' <<<"$1")
	printf '%s' "${!var:-}"
}

# ---- what this needs, all that is missing named at once ----

missing=()
need() { missing+=("  - $1"); }

wanted=("$@")
for name in ${wanted[@]+"${wanted[@]}"}; do
	rows | awk -v n="$name" '$1 == n { found = 1 } END { exit !found }' ||
		need "a server named \"$name\": there is $(rows | awk '{ printf "%s%s", s, $1; s = ", " }')"
done
[[ $pull_timeout =~ ^[0-9]+$ ]] || need "LEASECACHE_PULL_TIMEOUT in whole seconds: \"$pull_timeout\" is not"

if ! command -v docker >/dev/null; then
	need "the docker command and an engine: install Docker (on Debian: apt-get install docker.io)"
elif ! docker version >/dev/null 2>&1; then
	need "a running Docker daemon that this user may use: start it (systemctl start docker, or dockerd as root), or set DOCKER_HOST, or join the group docker"
fi
# Named only beside something else that is missing: these are needed only to build, and a pull may make that unnecessary.
build_missing=()
[[ $(id -u) == 0 ]] || build_missing+=("  - root (only to build an image that cannot be pulled): run scripts/images.sh as root, for example with sudo")
command -v debootstrap >/dev/null || [[ $(id -u) == 0 && -n $(command -v apt-get) ]] ||
	build_missing+=("  - debootstrap (only to build an image that cannot be pulled): on Debian, apt-get install debootstrap")

fail() { # headline, lines...
	printf 'images.sh: %s\n' "$1" >&2
	shift
	printf '%s\n' "$@" >&2
	printf '%s\n' "Without images, the tests also run on valkey-server and redis-server from PATH, on LEASECACHE_SERVER_<NAME>=/path/to/binary," \
		"or on LEASECACHE_ADDR_<NAME>=host:port, where <NAME> is a row's name in capitals, such as VALKEY_9 or VALKEY_8_1." >&2
	exit 1
}
((${#missing[@]} == 0)) || fail "this is missing:" "${missing[@]}" ${build_missing[@]+"${build_missing[@]}"}

# ---- building ----

# Called in conditions, where bash does not stop at a failed command: each function says "|| return" itself.

work=
child=
cleanup() {
	if [[ -n $child ]]; then
		kill -KILL -- "-$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	[[ -n $work ]] || return 0
	# A debootstrap that was ended leaves /proc mounted in there.
	awk -v w="$work/" 'index($2, w) == 1 { print $2 }' /proc/mounts | sort -r | while read -r dir; do umount -l "$dir"; done
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run runs a long command as a process group of its own, so that this script ends at once, and the group with it, when told to.
run() { # command...
	local status=0
	set -m
	"$@" </dev/null &
	child=$!
	set +m
	wait "$child" || status=$?
	child=
	return "$status"
}

log_tail() { sed 's/^/    /' "$1" | tail -n 15 >&2; }

install_debootstrap() {
	command -v debootstrap >/dev/null && return
	local log=$work/apt.log
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap; } >"$log" 2>&1 && return
	printf 'images.sh: apt-get could not install debootstrap:\n' >&2
	log_tail "$log"
	return 1
}

# rootfs SUITE SCRIPT makes $work/SUITE.tar, once, with every server that the table takes from that suite.
rootfs() {
	local suite=$1 script=$2 packages dir log
	[[ ! -e $work/$suite.tar ]] || return 0
	packages=$(rows | awk -v s="$suite" '$5 == s && !seen[$7]++ { printf "%s%s", c, $7; c = "," }')
	dir=$work/$suite log=$work/$suite.log
	# An empty mirror leaves debootstrap its default. The script's name comes after it.
	if ! run debootstrap --variant=minbase --include="$packages" "$suite" "$dir" "" "$script" >"$log" 2>&1; then
		printf 'images.sh: debootstrap %s failed:\n' "$suite" >&2
		log_tail "$log"
		return 1
	fi
	rm -rf "$dir"/usr/share/{doc,man,locale,info,lintian}/* "$dir"/var/lib/apt/lists/* "$dir"/var/cache/apt/* "$dir"/var/log/*
	mkdir -p "$dir/data" || return
	tar -C "$dir" --one-file-system --numeric-owner -c . >"$work/$suite.part" || return
	mv "$work/$suite.part" "$work/$suite.tar" || return
	rm -rf --one-file-system "$dir"
}

build() { # local image, binary, suite, script
	[[ -n $work ]] || work=$(mktemp -d "${TMPDIR:-/tmp}/leasecache-images.XXXXXX") || return
	install_debootstrap && rootfs "$3" "$4" &&
		docker import -c "WORKDIR /data" -c "EXPOSE 6379" -c "CMD [\"$2\", \"--protected-mode\", \"no\"]" "$work/$3.tar" "$1" >/dev/null
}

pull_error=
pull() { # image; says in pull_error why not
	local limit=()
	if ((pull_timeout == 0)); then
		pull_error=${pull_error:-"LEASECACHE_PULL_TIMEOUT is 0"}
		return 1
	fi
	[[ -z $(command -v timeout) ]] || limit=(timeout "$pull_timeout")
	pull_error=$(${limit[@]+"${limit[@]}"} docker pull -q "$1" 2>&1 >/dev/null) && return
	pull_error=$(tail -n 1 <<<"${pull_error:-"no answer in $pull_timeout s"}")
	return 1
}

# ---- one line per row ----

failed=()
while read -r name official own binary suite script _; do
	if ((${#wanted[@]} > 0)) && [[ " ${wanted[*]} " != *" $name "* ]]; then
		continue
	fi
	start=$SECONDS
	image=$(override_of "$name")
	if [[ -n $image ]]; then
		if has_image "$image"; then how="there (from the environment)"
		elif pull "$image"; then how="pulled (from the environment)"
		else how="" failed+=("  - $name: the image \"$image\" that the environment names is neither in the engine nor could it be pulled ($pull_error)"); fi
	elif has_image "$own"; then image=$own how="there"
	elif has_image "$official"; then image=$official how="there"
	elif pull "$official"; then image=$official how="pulled"
	else
		pull_timeout=0 # one refusal is enough: the other images come from the same place
		if ((${#build_missing[@]} > 0)); then
			how="" failed+=("  - $name: $official could not be pulled ($pull_error), and it cannot be built here without what is named below")
		elif build "$own" "$binary" "$suite" "$script" </dev/null; then image=$own how="built from Debian $suite"
		else how="" failed+=("  - $name: $official could not be pulled ($pull_error), and building $own failed (see above)"); fi
	fi
	printf '%-11s %-28s %-28s %4ds\n' "$name" "${image:-$official}" "${how:-FAILED}" "$((SECONDS - start))"
done < <(rows)

((${#failed[@]} == 0)) || fail "no image for:" "${failed[@]}" ${build_missing[@]+"${build_missing[@]}"}
