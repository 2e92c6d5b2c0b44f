#!/bin/sh
# An agent in plain REST: six requests, made with curl. Nothing else is needed but a POSIX shell, awk, sed, tr and od.
#
#   agent.sh TYPE ARGUMENTS CMD [ARG...]
#   agent.sh stripe.refund '{"payment_id":"txn_1","amount":2000}' ./refund.sh
#
# It proposes the action, waits until it may be executed, runs CMD once, and reports how it ended. CMD gets the arguments as
# they are stored on stdin, and in its environment CTRLRUN_IDEMPOTENCY_TOKEN, the token of this attempt: send it along to the
# remote. Exit code 0 of CMD means that it happened; the code CTRLRUN_NOT_EXECUTED_EXIT, if you set one, states that for
# certain nothing happened; every other code, and a signal, is unknown.
#
# Exit codes are those of kubectl ctrlrun: 0 committed, 1 blocked or an error, 2 usage, 3 denied, 4 committed already,
# 5 still waiting or in progress, 6 unknown, do not try again, 7 not executed, 8 expired, 9 refused.
#
# In a pod it finds everything by itself. Elsewhere set
#   CTRLRUN_SERVER, CTRLRUN_CA         the apiserver's URL, and the file with its certificate authority
#   CTRLRUN_NAMESPACE                  where to act
#   CTRLRUN_TOKEN_FILE                 a file with a token, or
#   CTRLRUN_CERT, CTRLRUN_KEY          a client certificate and its key
# and, if you like, CTRLRUN_LEASE_SECONDS (300): how long CMD may take, and CTRLRUN_TIMEOUT_SECONDS (900): how long to wait.
set -u
export LC_ALL=C

account=/var/run/secrets/kubernetes.io/serviceaccount
server=${CTRLRUN_SERVER:-https://kubernetes.default.svc}
server=${server%/}
ca=${CTRLRUN_CA:-$account/ca.crt}
namespace=${CTRLRUN_NAMESPACE:-$(cat $account/namespace)}
token_file=${CTRLRUN_TOKEN_FILE:-$account/token}
lease=${CTRLRUN_LEASE_SECONDS:-300}
timeout=${CTRLRUN_TIMEOUT_SECONDS:-900}
actions=/apis/ctrlrun.dev/v1alpha1/namespaces/$namespace/actions
claims=/apis/ctrlrun.dev/v1alpha1/namespaces/$namespace/claims
outcomes=/apis/ctrlrun.dev/v1alpha1/namespaces/$namespace/outcomes

note() { printf 'agent: %s\n' "$*" >&2; }
die() {
	code=$1
	shift
	note "$@"
	exit "$code"
}

[ $# -ge 3 ] || die 2 "usage: agent.sh TYPE ARGUMENTS CMD [ARG...]"
type=$1 arguments=$2
shift 2
case $type in
*[!A-Za-z0-9._:/-]* | '') die 2 "TYPE is a word such as stripe.refund" ;;
esac
command -v "$1" >/dev/null || die 2 "$1: no such command"

umask 077
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

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
	printf '%s' "${3:-}" >"$work/body"
	if [ "$1" = POST ]; then
		set -- "$1" "$2" --header 'Content-Type: application/json' --data-binary "@$work/body"
	fi
	method=$1 path=$2
	shift 2
	status=$(curl --config "$work/config" --silent --show-error --max-time 30 --request "$method" --output "$work/answer" \
		--write-out '%{http_code}' --header 'Accept: application/json' "$@" "$server$path?pretty=true" 2>"$work/error") || status=000
}

# request is send, repeated until there is a definite answer. A request without one may have been carried out, so whoever
# creates something must recognise its own when it is told that the name is taken.
request() {
	tries=0
	while :; do
		send "$@"
		case $status in
		000 | 429 | 5??) ;;
		*) return 0 ;;
		esac
		tries=$((tries + 1))
		if [ $tries -ge 30 ]; then
			note "no answer from $server: $status $(cat "$work/error") $(field message)"
			return 1
		fi
		sleep 1
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
# The name holds the claimID, so nobody else has it: an action of that name is ours, even if we never got the answer.
name=$(printf '%s' "$type" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//' | cut -c1-60)-$claim
uid= claimed= reported=

# Request 1, who am I: what the apiserver takes us for. It goes into every statement, and a statement with another is refused.
whoami() {
	request POST /apis/authentication.k8s.io/v1/selfsubjectreviews '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' || exit 1
	[ "$status" = 201 ] || refused "who am I"
	me=$(field status.userInfo.username)
	# The speaker, part of the name of what we state: the words of the user name, joined by dashes.
	speaker=$(printf '%s' "$me" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//')
	[ -n "$speaker" ] || speaker=x
	[ ${#speaker} -le 100 ] || speaker=$(printf '%s' "$speaker" | sed 's/^\(.\{60\}\).*\(.\{39\}\)$/\1-\2/')
}

# Request 2, propose: "I want to do exactly this, and this process will do it." 201 is created, 409 our own lost answer.
propose() {
	asked=$(date +%s)
	request POST "$actions" "{\"apiVersion\":\"ctrlrun.dev/v1alpha1\",\"kind\":\"Action\",\"metadata\":{\"name\":\"$name\"},
		\"spec\":{\"actionType\":\"$type\",\"arguments\":$arguments,\"principal\":{\"agent\":\"$me\"},
		\"claimID\":\"$claim\",\"leaseDurationSeconds\":$lease}}" || withdraw "the answer to the proposal never came"
	case "$status $(field message)" in
	201* | 409*) note "proposed $name" ;;
	*ValidatingAdmissionPolicy*) refused "propose $type" ;;
	400* | 422*) die 1 "propose $type: $(field message)" ;;
	*) refused "propose $type" ;;
	esac
}

# Request 3, wait: read the action until it says that this process may execute, or that it is over.
read_action() {
	request GET "$actions/$name" || return 1
	[ "$status" = 200 ] || return 1
	uid=$(field metadata.uid)
	state=$(field status.state)
	reason=$(field status.reason)
}

wait_admitted() {
	deadline=$(($(date +%s) + timeout))
	seen=
	while [ "$(date +%s)" -lt $deadline ]; do
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
	asked=$(date +%s)
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

# Request 5, report: how it ended, and that it ended: the name of an outcome is a lock, and whoever creates it ends the attempt.
# 409 is our own lost answer, or the operator, who has declared the lease over; then a late report is left for people to read.
report() { # RESULT TEXT
	reported=yes
	lock=$uid.$claim.$speaker
	outcome="\"spec\":{\"actionRef\":{\"name\":\"$name\",\"uid\":\"$uid\"},\"claimID\":\"$claim\",\"result\":\"$1\",\"error\":\"$2\",\"reporter\":\"$me\"}}"
	head='"apiVersion":"ctrlrun.dev/v1alpha1","kind":"Outcome"'
	request POST "$outcomes" "{$head,\"metadata\":{\"name\":\"$lock\"},$outcome" || return 1
	case $status in
	201) return 0 ;;
	409)
		request GET "$outcomes/$lock" || return 1
		[ "$(field spec.reporter) $(field spec.result)" != "$me $1" ] || return 0
		request POST "$outcomes" "{$head,\"metadata\":{\"name\":\"late.$lock\"},$outcome"
		note "the lease was declared over before this report came"
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
	left=30
	while read_action && [ -z "$(field status.receiptRef.name)" ] && [ $left -gt 0 ]; do
		sleep 1
		left=$((left - 1))
	done
	[ -n "$(field status.receiptRef.name)" ]
}

# finish ends with the exit code of how the action ended.
finish() {
	receipt || die 6 "it is not settled yet; do not try again: kubectl ctrlrun inspect $name -n $namespace"
	note "$name is $state${reason:+, $reason}: $(field status.message)"
	note "receipt $(field status.receiptRef.name) $(field status.receiptRef.hash)"
	case $state in
	Committed) exit 0 ;;
	Denied) exit 3 ;;
	Failed) exit 7 ;;
	Expired) exit 8 ;;
	Blocked) ;;
	*) exit 6 ;;
	esac
	case $reason in
	duplicate) exit 4 ;;
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
[ $((3 * (lease - $(date +%s) + asked))) -ge "$lease" ] || withdraw "less than a third of the lease is left" 7

# From here on something may have happened. An interruption reaches CMD; this process stays to report.
field spec.arguments >"$work/arguments"
CTRLRUN_IDEMPOTENCY_TOKEN=$(field status.execution.token)
export CTRLRUN_IDEMPOTENCY_TOKEN
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
