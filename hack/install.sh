#!/usr/bin/env bash
# Installs ctrlrun into the cluster of the current kube context and returns when an agent's proposal would count there.
set -euo pipefail
export LC_ALL=C # times are compared as text
cd "$(dirname "$0")/.."

kubectl=${KUBECTL:-kubectl}
image=${1:?usage: hack/install.sh IMAGE}

# The kinds first: an object of a kind that is not established yet is refused.
$kubectl apply --server-side -k config/crd
$kubectl wait --for=condition=Established --timeout=60s $($kubectl get -k config/crd -o name)

# The image is set in an overlay outside config/, so that installing changes no file in Git. A colon before the last slash
# belongs to a registry's port and not to a tag.
name=$image tag=latest
if [[ ${image##*/} == *:* ]]; then
	name=${image%:*} tag=${image##*:}
fi
mkdir -p .ctrlrun/install
cat >.ctrlrun/install/kustomization.yaml <<EOF
resources:
- ../../config/default
images:
- name: ctrlrun-operator
  newName: $name
  newTag: "$tag"
EOF
$kubectl apply --server-side -k .ctrlrun/install
$kubectl -n ctrlrun-system rollout status deployment/ctrlrun-operator --timeout=5m

# The operator counts statements from some seconds after it first saw its admission policies refuse a forgery. Creation times
# are whole seconds, so the second that admissionSince is in has to be over: hence no Z on the right.
echo "waiting until admission counts ..."
for _ in {1..60}; do
	since=$($kubectl get ledger ctrlrun-system --ignore-not-found -o jsonpath='{.status.admissionSince}')
	if [[ -n $since && $since < $(date -u +%Y-%m-%dT%H:%M:%S) ]]; then
		echo "installed; statements made since $since count"
		exit 0
	fi
	sleep 1
done
echo "the operator is ready but admission has not come into force: kubectl -n ctrlrun-system logs deployment/ctrlrun-operator" >&2
exit 1
