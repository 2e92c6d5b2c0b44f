#!/bin/sh
# An agent in plain REST: a POSIX shell, curl, and what every small image has: awk cat cut mktemp od rm sed sha256sum sleep tr.
# JSON is read by awk, for jq is in few images.
#
#   agent.sh TYPE ARGUMENTS CMD [ARG...]
#   agent.sh stripe.refund '{"payment_id":"txn_1","amount":2000}' sh post.sh
#   agent.sh --effect-name KEY       prints the object name of an effect key
#   agent.sh --speaker USERNAME      prints the part of a statement's name that says who made it
#
# It proposes the action, waits until it may be executed, runs CMD once, and reports how it ended. CMD gets the arguments as
# they are stored on stdin, and in its environment CTRLRUN_IDEMPOTENCY_TOKEN, the token of this attempt: send it along to the
# remote; and CTRLRUN_LEASE_REMAINING_SECONDS, how long it may take. Exit code 0 of CMD means that it happened; the code
# CTRLRUN_NOT_EXECUTED_EXIT, if you set one, states that for certain nothing happened; every other code, and a signal, is unknown.
#
# Exit codes are those of kubectl ctrlrun: 0 committed, 1 blocked or an error, 2 usage, 3 denied, 4 committed already,
# 5 still waiting or in progress, 6 unknown, do not try again, 7 not executed, 8 expired, 9 refused.
#
# In a pod it finds everything by itself. Elsewhere set
#   CTRLRUN_SERVER, CTRLRUN_CA         the apiserver's URL, and the file with its certificate authority
#   CTRLRUN_NAMESPACE                  where to act
#   CTRLRUN_TOKEN_FILE                 a file with a token, or
#   CTRLRUN_CERT, CTRLRUN_KEY          a client certificate and its key
# and, if you like,
#   CTRLRUN_LEASE_SECONDS (300)        how long CMD may take
#   CTRLRUN_TIMEOUT_SECONDS (900)      how long to wait until it may begin
#   CTRLRUN_COMMITTED_ALREADY_EXIT (4) 0 where it does not matter by whom it was done, as to a CronJob
#   CTRLRUN_EFFECT_KEY                 the effect key, if you know it: then the action is called like its effect, and people find it
#
# It leaves out what agent.py beside it has, and nothing that safety rests on: it does not look for an equal action that waits
# already, so people may be asked twice; it does not read the policies for the effect key; it does not read what became of its
# claim, and waits for its timeout instead; it keeps no output; the arguments reach CMD with the spaces that the apiserver
# prints; and it does not stop a CMD that takes longer than the lease.
set -u
export LC_ALL=C

account=/var/run/secrets/kubernetes.io/serviceaccount
token_file=${CTRLRUN_TOKEN_FILE:-$account/token}
ca=${CTRLRUN_CA:-$account/ca.crt}
lease=${CTRLRUN_LEASE_SECONDS:-300}
timeout=${CTRLRUN_TIMEOUT_SECONDS:-900}
already=${CTRLRUN_COMMITTED_ALREADY_EXIT:-4}

note() { printf 'agent: %s\n' "$*" >&2; }
die() {
	code=$1
	shift
	note "$@"
	exit "$code"
}

# words prints the runs of ASCII letters and digits of a text in lower case, joined by dashes.
words() {
	joined=$(printf '%s' "$1" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-')
	joined=${joined#-}
	printf '%s' "${joined%-}"
}

# effect_name prints the object name of an effect key: 30 characters of its words, and 100 bits of its SHA-256 in base 32, which
# is four characters for every five hexadecimal digits.
effect_name() {
	slug=$(words "$1" | cut -c1-30)
	slug=${slug%-}
	printf '%s' "$1" | sha256sum | awk -v slug="${slug:-k}" '{
		for (i = 0; i < 5; i++) {
			bits = 0
			for (j = 1; j <= 5; j++) bits = bits * 16 + index("0123456789abcdef", substr($1, 5 * i + j, 1)) - 1
			for (j = 32768; j >= 1; j /= 32) hash = hash substr("abcdefghijklmnopqrstuvwxyz234567", int(bits / j) % 32 + 1, 1)
		}
		print slug "-" hash
	}'
}

# speaker prints the part of a statement's name that says who made it.
speaker() {
	said=$(words "$1")
	[ ${#said} -le 100 ] || said=$(printf '%s' "$said" | sed 's/^\(.\{60\}\).*\(.\{39\}\)$/\1-\2/')
	printf '%s\n' "${said:-x}"
}

case $#-${1:-} in
2---effect-name) effect_name "$2" && exit ;;
2---speaker) speaker "$2" && exit ;;
esac
[ $# -ge 3 ] || die 2 "usage: agent.sh TYPE ARGUMENTS CMD [ARG...]"
type=$1 arguments=$2
shift 2
case $type in
*[!A-Za-z0-9._:/-]* | '') die 2 "TYPE is a word such as stripe.refund" ;;
esac
# The arguments are put into the proposal as they are. They must be one object, so that nothing in them is read as another field.
printf '%s' "$arguments" | awk '
	{ text = text $0 "\n" }
	END {
		n = length(text)
		for (i = 1; i <= n; i++) {
			c = substr(text, i, 1)
			if (quoted) {
				if (c == "\\") i++
				else if (c == "\"") quoted = 0
				continue
			}
			if (c ~ /[ \t\r\n]/) continue
			if (over || (!depth && c != "{")) exit 1
			if (c == "\"") quoted = 1
			else if (c == "{" || c == "[") depth++
			else if (c == "}" || c == "]") over = --depth == 0
		}
		exit !over
	}' || die 2 "ARGUMENTS is a JSON object such as {\"payment_id\":\"txn_1\",\"amount\":2000}"
command -v "$1" >/dev/null || die 2 "$1: no such command"
case $lease$timeout in
*[!0-9]*) die 2 "CTRLRUN_LEASE_SECONDS and CTRLRUN_TIMEOUT_SECONDS are whole seconds" ;;
esac

host=${KUBERNETES_SERVICE_HOST:-kubernetes.default.svc}
case $host in
*:*) host="[$host]" ;;
esac
server=${CTRLRUN_SERVER:-https://$host:${KUBERNETES_SERVICE_PORT:-443}}
server=${server%/}
namespace=${CTRLRUN_NAMESPACE:-$(cat $account/namespace)}
actions=/apis/ctrlrun.dev/v1alpha1/namespaces/$namespace/actions
claims=/apis/ctrlrun.dev/v1alpha1/namespaces/$namespace/claims
outcomes=/apis/ctrlrun.dev/v1alpha1/namespaces/$namespace/outcomes

[ -r /proc/uptime ] || die 1 "there is no /proc/uptime, by which this agent measures what is left of a lease"
umask 077
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# clock prints seconds that go on also while the machine sleeps, and that nobody sets: how long Linux has been up.
clock() {
	read -r up _ </proc/uptime
	echo "${up%%.*}"
}

# epoch turns a time of the apiserver, from its Date header or from an object, into seconds since 1970.
epoch() {
	printf '%s\n' "$1" | tr -d '\r' | awk '{
		if ($0 ~ /^[0-9]+-/) { split($0, t, /[-T:.Z]/); y = t[1]; m = t[2]; d = t[3]; clock = t[4] ":" t[5] ":" t[6] }
		else { d = $2; m = (index("JanFebMarAprMayJunJulAugSepOctNovDec", $3) + 2) / 3; y = $4; clock = $5 }
		split(clock, c, ":")
		m = m + 0
		if (m <= 2) { y--; m += 12 }
		days = 365 * y + int(y / 4) - int(y / 100) + int(y / 400) + int((153 * (m - 3) + 2) / 5) + d - 1 - 719468
		printf "%d\n", ((days * 24 + c[1]) * 60 + c[2]) * 60 + c[3]
	}'
}

# header prints a header of the last answer.
header() { awk -v name="$1:" 'tolower($1) == name { sub(/^[^ ]* */, ""); print; exit }' "$work/headers"; }

# send METHOD PATH [BODY] makes one request. It leaves the HTTP status in $status, 000 if there was no answer, and the answer in
# $work/answer, one JSON member a line: that is what lets awk read it. Credentials go by a file, for others may read the
# arguments of a process. The token is read each time: it is renewed under us.
send() {
	{
		printf 'cacert = "%s"\n' "$ca"
		if [ -n "${CTRLRUN_CERT:-}" ]; then
			printf 'cert = "%s"\nkey = "%s"\n' "$CTRLRUN_CERT" "$CTRLRUN_KEY"
		else
			printf 'header = "Authorization: Bearer %s"\n' "$(cat "$token_file")"
		fi
	} >"$work/config"
	: >"$work/answer"
	: >"$work/headers"
	printf '%s' "${3:-}" >"$work/body"
	if [ "$1" = POST ]; then
		set -- "$1" "$2" --header 'Content-Type: application/json' --data-binary "@$work/body"
	fi
	method=$1 path=$2
	shift 2
	sent=$(clock)
	status=$(curl --disable --config "$work/config" --silent --show-error --max-time 30 --request "$method" --output "$work/answer" \
		--dump-header "$work/headers" --write-out '%{http_code}' --header 'Accept: application/json' "$@" \
		"$server$path?pretty=true" 2>"$work/error") || status=000
	date=$(header date)
	[ "$status" = 000 ] || [ -z "$date" ] || { dated=$(epoch "$date") && dated_at=$sent; }
}

# request is send, repeated until there is a definite answer, for at most $window seconds. A request without one may have been
# carried out, so whoever creates something must recognise its own when it is told that the name is taken. While $patient, also a
# refusal by RBAC is repeated, for ten seconds: an apiserver that has just started may not know our rights yet.
window=30 patient=
request() {
	begun=$(clock) pause=1 refused_at=
	while :; do
		send "$@"
		case $status-$patient-$(field message) in
		000-* | 429-* | 5??-*) ;;
		40[13]-yes-*ValidatingAdmissionPolicy*) return 0 ;;
		40[13]-yes-*)
			refused_at=${refused_at:-$(clock)}
			[ $(($(clock) - refused_at)) -lt 10 ] || return 0
			;;
		*) return 0 ;;
		esac
		if [ $(($(clock) - begun)) -ge $window ]; then
			note "no answer from $server: $status $(cat "$work/error") $(field message)"
			return 1
		fi
		asked_to_wait=$(header retry-after | tr -cd '0-9')
		[ "${asked_to_wait:-0}" -le $pause ] || pause=$asked_to_wait
		sleep $pause
		pause=$((pause < 3 ? 2 * pause : 5))
	done
}

# field PATH prints the member at a dotted path of the last answer: a string as JSON has it but without its quotes, an object
# with all its lines. It goes by the indentation, so a member of the same name elsewhere, in the arguments say, is another one.
field() {
	awk -v path="$1" '
		BEGIN { depth = split(path, want, "."); at = 0; copying = 0 }
		{ indent = match($0, /[^ ]/) - 1 }
		copying {
			line = $0
			if (indent == base) sub(/,$/, "", line)
			print line
			if (indent == base) exit
			next
		}
		at > 0 && indent == 2 * at && /^ *}/ { at--; next }
		indent == 2 * (at + 1) && index($0, "\"" want[at + 1] "\": ") == indent + 1 {
			value = substr($0, indent + length(want[at + 1]) + 5)
			if (at + 1 < depth) {
				if (value == "{") at++
				next
			}
			if (value == "{") { print value; copying = 1; base = indent; next }
			sub(/,$/, "", value)
			if (value ~ /^".*"$/) value = substr(value, 2, length(value) - 2)
			print value
			exit
		}' "$work/answer"
}

refused() { die 9 "$1: refused with $status: $(field message)"; }

# The claimID says "this process": an action is admitted for one claimID, and only whoever holds it may execute.
claim=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n' | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{4\}\)\(.\{4\}\)/\1-\2-\3-\4-/')
[ ${#claim} -eq 36 ] || die 1 "there is no randomness for a claimID"
name= uid= claimed= reported= dated=

# Request 1, who am I: what the apiserver takes us for. It goes into every statement, and a statement with another is refused.
whoami() {
	request POST /apis/authentication.k8s.io/v1/selfsubjectreviews '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' || exit 1
	[ "$status" = 201 ] || refused "who am I"
	me=$(field status.userInfo.username)
	case $me in
	*\\*) die 1 "the user name has characters that are escaped in JSON; this agent cannot speak for it" ;;
	esac
	speaker=$(speaker "$me")
}

# names prints the names to try. Any name is accepted; one with the claimID is nobody else's.
names() {
	if [ -z "${CTRLRUN_EFFECT_KEY:-}" ]; then
		printf '%s-%s\n' "$(words "$type" | cut -c1-60)" "$claim"
		return
	fi
	base=$(effect_name "$CTRLRUN_EFFECT_KEY")
	printf '%s\n' "$base" "$base.2" "$base.3" "$base.4" "$base.5" "$base.6" "$base.7" "$base.8" "$base.9" "$base-${claim%%-*}"
}

# Request 2, propose: "I want to do exactly this, and this process will do it." 201 is created. 409 with our claimID is our own
# lost answer; anything else of that name is somebody else's proposal and is never adopted.
propose() {
	for name in $(names); do
		asked=$(clock)
		request POST "$actions" "{\"apiVersion\":\"ctrlrun.dev/v1alpha1\",\"kind\":\"Action\",\"metadata\":{\"name\":\"$name\"},
			\"spec\":{\"actionType\":\"$type\",\"arguments\":$arguments,\"principal\":{\"agent\":\"$me\"},
			\"claimID\":\"$claim\",\"leaseDurationSeconds\":$lease}}" || withdraw "the answer to the proposal never came"
		case "$status $(field message)" in
		201*) ;;
		409*)
			request GET "$actions/$name" || withdraw "the answer to the proposal never came"
			[ "$(field spec.claimID)" = "$claim" ] || continue
			;;
		*ValidatingAdmissionPolicy*) refused "propose $type" ;;
		400* | 422*) die 1 "propose $type: $(field message)" ;;
		*) refused "propose $type" ;;
		esac
		uid=$(field metadata.uid)
		note "proposed $name"
		return
	done
	die 1 "every name for the action is taken by another proposal"
}

# Request 3, wait: read the action until it says that this process may execute, or that it is over.
read_action() {
	request GET "$actions/$name" || return 1
	[ "$status" = 200 ] && [ "$(field spec.claimID)" = "$claim" ] || return 1
	uid=$(field metadata.uid)
	state=$(field status.state)
	reason=$(field status.reason)
}

wait_admitted() {
	deadline=$(($(clock) + timeout))
	seen=
	while [ "$(clock)" -lt $deadline ]; do
		read_action || withdraw "the action cannot be read: $status $(field message)"
		[ "$state $reason" = "$seen" ] || note "$name is $state${reason:+, $reason}: $(field status.message)"
		seen="$state $reason"
		case $state in
		Admitted)
			[ "$(field status.execution.claimID)" = "$claim" ] || die 5 "it was admitted for another process: do not execute"
			return
			;;
		Claimable) claim_it ;;
		Committed | Failed | Ambiguous | Observed | Denied | Blocked | Expired) finish ;;
		esac
		sleep 1
	done
	withdraw "nobody decided within $timeout seconds"
}

# Request 4, claim: "I am still here." After people were asked, nothing is reserved until a process says so. The claim quotes
# the time from which it may be made. If the name is taken, by a lost answer of ours or by another process, the next one is
# tried: to say the same twice is harmless, for only one claim counts.
claim_it() {
	since=$(field status.claimableTime)
	[ "$since" != "$claimed" ] || return 0
	asked=$(clock)
	for suffix in '' .2 .3 .4 .5 .6 .7 .8 .9; do
		request POST "$claims" "{\"apiVersion\":\"ctrlrun.dev/v1alpha1\",\"kind\":\"Claim\",\"metadata\":{\"name\":\"$name.$speaker$suffix\"},
			\"spec\":{\"actionRef\":{\"name\":\"$name\",\"uid\":\"$uid\"},\"claimID\":\"$claim\",\"claimableTime\":\"$since\",\"claimant\":\"$me\"}}" ||
			withdraw "the answer to the claim never came"
		case $status in
		201)
			claimed=$since
			note "claimed $name"
			return
			;;
		409) ;;
		*) withdraw "the claim was refused with $status: $(field message)" ;;
		esac
	done
	withdraw "every name for a claim is taken"
}

# remaining prints the seconds that are left of the lease: the smaller of what the apiserver's clock leaves of it, and what ours
# leaves of its duration since we asked for it. The first is wrong if clocks differ; the second is never too long, on any clock.
remaining() {
	now=$(clock)
	by_duration=$((lease - (now - asked) - 1))
	by_server=$by_duration
	[ -z "$dated" ] || by_server=$(($(epoch "$(field status.execution.leaseExpirationTime)") - (dated + 1 + now - dated_at)))
	echo $((by_server < by_duration ? by_server : by_duration))
}

# Request 5, report: how it ended, and that it ended: the name of an outcome is a lock, and whoever creates it ends the attempt.
# 409 is our own lost answer, or the operator, who has declared the lease over; then a late report is left for people to read.
report() { # RESULT TEXT
	reported=yes window=120 patient=yes
	lock=$uid.$claim.$speaker
	outcome="\"spec\":{\"actionRef\":{\"name\":\"$name\",\"uid\":\"$uid\"},\"claimID\":\"$claim\",\"result\":\"$1\",\"error\":\"$2\",\"reporter\":\"$me\"}}"
	head='"apiVersion":"ctrlrun.dev/v1alpha1","kind":"Outcome"'
	request POST "$outcomes" "{$head,\"metadata\":{\"name\":\"$lock\"},$outcome" || return 1
	case $status in
	201) return 0 ;;
	409)
		request GET "$outcomes/$lock" || return 1
		[ "$(field spec.reporter) $(field spec.result) $(field spec.reason)" != "$me $1 " ] || return 0
		if [ "$(field spec.reason)" = LeaseLapsed ]; then
			note "the lease was declared over before this report came"
			request POST "$outcomes" "{$head,\"metadata\":{\"name\":\"late.$lock\"},$outcome" || return 1
		else
			note "$(field spec.reporter) reported $(field spec.result) before, and now $1; the first report counts"
		fi
		return 1
		;;
	esac
	note "the report was refused with $status: $(field message)"
	return 1
}

# withdraw says that this process will not execute, so that nobody waits for it, and ends.
withdraw() {
	note "$1"
	trap '' HUP INT TERM
	[ -n "$uid" ] || read_action
	if [ -n "$uid" ] && [ -z "$reported" ]; then
		report NotExecuted "the process stopped waiting" && note "it was withdrawn; nothing was executed"
	fi
	exit "${2:-1}"
}

# Request 6, read the receipt: the action, once more, says how it ended and names the receipt that proves it.
receipt() {
	deadline=$(($(clock) + 30))
	while read_action; do
		[ -z "$(field status.receiptRef.name)" ] || return 0
		[ "$(clock)" -lt $deadline ] || break
		sleep 1
	done
	return 1
}

# finish ends with the exit code of how the action ended.
finish() {
	if ! receipt && [ -n "$reported" ]; then
		die 6 "it is not settled yet; do not try again: kubectl ctrlrun inspect $name -n $namespace"
	fi
	note "$name is $state${reason:+, $reason}: $(field status.message)"
	note "receipt $(field status.receiptRef.name) $(field status.receiptRef.hash)"
	[ "$state" != Observed ] || state=$(field status.outcome)
	case $state in
	Committed) [ -n "$reported" ] && exit 0 || exit "$already" ;;
	Denied) exit 3 ;;
	Failed) exit 7 ;;
	Expired) exit 8 ;;
	Blocked) ;;
	*) exit 6 ;;
	esac
	case $reason in
	duplicate) exit "$already" ;;
	in_progress) exit 5 ;;
	ambiguous) exit 6 ;;
	esac
	exit 1
}

trap 'withdraw "interrupted"' HUP INT TERM
whoami
propose
wait_admitted

# Whoever starts late may still be at it when the lease is over and a person has allowed another attempt.
CTRLRUN_LEASE_REMAINING_SECONDS=$(remaining)
[ $((3 * CTRLRUN_LEASE_REMAINING_SECONDS)) -ge "$lease" ] || withdraw "less than a third of the lease is left" 7

# From here on something may have happened. An interruption reaches CMD; this process stays to report.
field spec.arguments >"$work/arguments"
CTRLRUN_IDEMPOTENCY_TOKEN=$(field status.execution.token)
export CTRLRUN_IDEMPOTENCY_TOKEN CTRLRUN_LEASE_REMAINING_SECONDS
trap : HUP INT TERM
"$@" <"$work/arguments"
code=$?
case $code in
0) result=Committed text= ;;
"${CTRLRUN_NOT_EXECUTED_EXIT:-none}") result=NotExecuted text="the command exited with $code, which states that nothing happened" ;;
*) result=Unknown text="the command exited with $code" ;;
esac
report $result "$text" || die 6 "the outcome is unknown, do not try again: kubectl ctrlrun inspect $name -n $namespace"
note "reported $result"
finish
