# What the scripts beside this file share: a folder of the run's own, and
# processes that end with it. To be sourced by bash.
set -euo pipefail

# shellcheck disable=SC2034 # for those who source this
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
pids=() # what is started and not yet waited for

trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

clean_up() {
	local status=$? log pid
	trap - EXIT
	set +e
	for pid in "${pids[@]}"; do
		kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	if ((status != 0)); then
		for log in "$work"/*.log; do
			[[ -s $log ]] && echo "--- ${log##*/}" && tail -n 50 "$log"
		done >&2
	fi
	chmod -R u+w "$work"
	rm -rf "$work"
	exit "$status"
}

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# ten_admitted NUMBER SECONDS: fails unless so many requests were admitted as ten per ten seconds allow, since this script ran
# for so long: ten, and one more for each second that this machine dawdles.
ten_admitted() {
	(($1 >= 10 && $1 <= 10 + SECONDS - $2)) || fail "$1 requests were admitted in $((SECONDS - $2)) s, want 10 and at most one more a second"
}

# fetch CURL-ARGUMENT...: curl that asks nobody but the address it is given.
fetch() {
	curl -q -sS --noproxy '*' --max-time 30 "$@"
}

# start LOG COMMAND...: starts a process, with its output in $work/LOG.log, and sets pid.
start() {
	: >"$work/$1.log" # there already when somebody looks before the process has begun
	"${@:2}" >"$work/$1.log" 2>&1 </dev/null &
	pid=$!
	pids+=("$pid")
}

# stop PID: asks a process to end, and sets code to its exit status.
stop() {
	local left=() p tries
	kill -TERM "$1" 2>/dev/null || true # it may have ended; its status tells
	for ((tries = 0; tries < 100; tries++)); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	! kill -0 "$1" 2>/dev/null || fail "process $1 still runs 10 s after SIGTERM"
	code=0
	wait "$1" || code=$?
	for p in "${pids[@]}"; do
		[[ $p == "$1" ]] || left+=("$p")
	done
	pids=("${left[@]}")
}

# start_redis [ARGUMENT...]: starts a redis-server on a free port, and sets pid and port.
start_redis() {
	local tries polls
	for ((tries = 0; tries < 10; tries++)); do
		port=$((10000 + RANDOM % 20000)) # below those that Linux gives to outgoing connections
		start redis redis-server "$@" --bind 127.0.0.1 --port "$port" --save '' --appendonly no --dir "$work"
		for ((polls = 0; polls < 100; polls++)); do
			kill -0 "$pid" 2>/dev/null || break # the port was taken: another one
			# Its own process id: at a taken port somebody else would answer.
			if [[ $(timeout 2 redis-cli -h 127.0.0.1 -p "$port" info server 2>/dev/null || true) == *"process_id:$pid"$'\r'* ]]; then
				return 0
			fi
			sleep 0.1
		done
		stop "$pid"
	done
	fail "redis-server does not start"
}

# start_app LOG BINARY [FLAG...]: starts an example app on a free port, and sets pid and url.
start_app() {
	local tries
	start "$1" "$2" -addr 127.0.0.1:0 "${@:3}"
	for ((tries = 0; tries < 200; tries++)); do
		url=$(sed -n 's|^Listening on \(http://127\.0\.0\.1:[0-9]*\), try:$|\1|p' "$work/$1.log")
		[[ -z $url ]] || return 0
		kill -0 "$pid" 2>/dev/null || fail "$2 ended before it listened"
		sleep 0.1
	done
	fail "$2 does not listen after 20 s"
}
