#!/bin/sh
# What agent.sh runs to execute: one POST of the arguments on stdin to PROVIDER_URL, with the token of the attempt as
# Idempotency-Key. Put your own work here. It needs curl and what agent.sh needs.
#
# Exit codes: 0 it happened; 75 for certain nothing happened (set CTRLRUN_NOT_EXECUTED_EXIT=75); 1 nobody knows.
#
#   PROVIDER_URL, PROVIDER_CA          where to POST to, and the file with its certificate authority if it is not a public one
#   PROVIDER_TOKEN_FILE                a bearer token for the provider
#   PROVIDER_TIMEOUT_SECONDS (20)      how long the provider may take; never longer than the lease
#   PROVIDER_NOT_EXECUTED ()           HTTP statuses by which this provider promises, in its documentation, that it did nothing
set -u
export LC_ALL=C

seconds=${PROVIDER_TIMEOUT_SECONDS:-20}
left=${CTRLRUN_LEASE_REMAINING_SECONDS:-$seconds}
[ "$seconds" -le "$left" ] || seconds=$left

# The configuration goes by stdin of curl, for others may read the arguments of a process; the body by another descriptor.
exec 3<&0
answer=$({
	printf 'url = "%s"\nheader = "Content-Type: application/json"\n' "$PROVIDER_URL"
	[ -z "${CTRLRUN_IDEMPOTENCY_TOKEN:-}" ] || printf 'header = "Idempotency-Key: %s"\n' "$CTRLRUN_IDEMPOTENCY_TOKEN"
	[ -z "${PROVIDER_TOKEN_FILE:-}" ] || printf 'header = "Authorization: Bearer %s"\n' "$(cat "$PROVIDER_TOKEN_FILE")"
	[ -z "${PROVIDER_CA:-}" ] || printf 'cacert = "%s"\n' "$PROVIDER_CA"
} | curl --disable --config - --silent --show-error --http1.1 --noproxy '*' --max-time "$seconds" --data-binary @/dev/fd/3 \
	--output /dev/null --write-out '%{http_code} %{size_request}')
code=$?

# curl follows no redirect and repeats nothing unless it is told to. 6: the host has no address; 7: no connection came about; 35 and
# 60: there was one, and the TLS handshake failed. That not one byte of the request was sent must be seen as well.
case "$code $answer" in
"0 200 "* | "0 201 "*) exit 0 ;;
"6 000 0" | "7 000 0" | "35 000 0" | "60 000 0") exit 75 ;;
"0 "*)
	answer=${answer%% *}
	echo "post: the provider answered $answer" >&2
	case " ${PROVIDER_NOT_EXECUTED:-} " in
	*" $answer "*) exit 75 ;;
	esac
	;;
esac
exit 1
