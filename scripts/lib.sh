# shellcheck shell=bash
# Sourced by the other scripts: they start in the root of the repository and read the table of modules through this.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit

# Every module is built with the versions of its own go.mod, as its users get it. go.work is for editors and for go run
# from the root; check-modules.sh builds with it too.
export GOWORK=off

# glide hands Go an address that is none for an empty string, and Go ends the process if it notices: see docs/adapters.md.
export GODEBUG=invalidptr=0${GODEBUG:+,$GODEBUG}

# modules [KIND...] prints the directories of the table, of these kinds or of all.
modules() {
	awk -v kinds=" $* " '
		/^[[:space:]]*(#|$)/ { next }
		kinds == "  " || index(kinds, " " $2 " ") { print $1 }' modules.txt
}

# heading TEXT... sets off what follows in the output, with the time since the first script started.
export LEASECACHE_BEGAN=${LEASECACHE_BEGAN:-$(date +%s)}
heading() {
	local seconds=$(($(date +%s) - LEASECACHE_BEGAN))
	printf '\n== %s (%d:%02d)\n' "$*" $((seconds / 60)) $((seconds % 60))
}

# engine_runs tells whether a container engine answers.
engine_runs() { command -v docker >/dev/null && docker version >/dev/null 2>&1; }

# servers_named tells whether the environment names servers to test on: LEASECACHE_ADDR_<NAME> or LEASECACHE_SERVER_<NAME>.
servers_named() { [[ -n ${!LEASECACHE_ADDR_*}${!LEASECACHE_SERVER_*} ]]; }
