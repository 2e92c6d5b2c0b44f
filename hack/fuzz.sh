#!/usr/bin/env bash
# Runs every fuzz target of the repository for the given time, one after the other: `go test -fuzz` takes one target.
set -euo pipefail
cd "$(dirname "$0")/.."

duration=${1:?usage: hack/fuzz.sh DURATION}
count=0
while IFS=: read -r file _ declaration; do
	package=$(dirname "$file") function=${declaration#func }
	echo "=== $package $function, $duration"
	"${GO:-go}" test -run='^$' -fuzz="^$function\$" -fuzztime="$duration" "$package" </dev/null
	count=$((count + 1))
done < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort)

if [[ $count -eq 0 ]]; then
	echo "no fuzz target found" >&2
	exit 1
fi
echo "$count fuzz targets ran for $duration each"
