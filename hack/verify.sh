#!/usr/bin/env bash
# Compares what is generated, formatted or tidied with what is in the tree. It writes nothing into the tree and does not ask
# git, so it says the same in a dirty tree; every difference is reported, with the command that removes it.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
tool="$go tool -modfile=hack/tools/go.mod"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# check DESCRIPTION REMEDY COMMAND...: the command succeeds, or its output and the remedy are shown.
check() {
	local description=$1 remedy=$2
	shift 2
	if "$@" >"$tmp/output" 2>&1; then
		echo "ok    $description"
		return
	fi
	echo "FAIL  $description: $remedy"
	head -n 200 "$tmp/output" | sed 's/^/      /'
	failed=1
}

deepcopy() {
	mkdir -p "$tmp/object"
	$tool controller-gen object:headerFile=hack/boilerplate/boilerplate.go.txt paths=./api/... output:object:dir="$tmp/object"
	diff -u api/v1alpha1/zz_generated.deepcopy.go "$tmp/object/zz_generated.deepcopy.go"
}

crds() {
	mkdir -p "$tmp/crd"
	$tool controller-gen crd paths=./api/... output:crd:dir="$tmp/crd"
	diff -ru config/crd/bases "$tmp/crd"
}

# Every generated CRD is installed.
crd_list() {
	diff <(cd config/crd && printf '%s\n' bases/*.yaml | sort) <(sed -nE 's/^- (bases\/.*\.yaml)$/\1/p' config/crd/kustomization.yaml | sort)
}

formatted() {
	local files
	files=$(gofmt -l -- $(ls -d api client cmd config controllers executors hack kernel test 2>/dev/null))
	[[ -z $files ]] || { echo "$files"; return 1; }
}

tidy() { (cd "$1" && "$go" mod tidy -diff); }

# Every kustomize directory renders.
render() {
	local dir status=0
	while IFS= read -r dir; do
		$tool kustomize build "$dir" >"$tmp/rendered" || status=1
	done < <(find config -name kustomization.yaml -exec dirname {} \; | sort)
	return $status
}

# The kinds that the API registers are the kinds of PROJECT.
kinds() {
	diff <(sed -nE 's/^  kind: (.*)$/\1/p' PROJECT | sort) <(sed -nE 's/^    kind: (.*)$/\1/p' config/crd/bases/*.yaml | sort)
}

check "deepcopy functions" "run 'make generate'" deepcopy
check "CRDs" "run 'make manifests'" crds
check "list of CRDs" "list every file of config/crd/bases in config/crd/kustomization.yaml" crd_list
check "kinds in PROJECT" "list the kinds of api/v1alpha1 in PROJECT" kinds
check "manifests render" "fix the kustomization" render
check "formatting" "run 'gofmt -w' on these files" formatted
check "go vet" "fix the code" "$go" vet ./...
vet_module() { (cd "$1" && "$go" vet ./...); }
check "go vet of hack/rules" "fix the code" vet_module hack/rules
check "go vet of hack/gitops" "fix the code" vet_module hack/gitops
# With the flags of the control plane's build, so that nothing of Kubernetes is compiled a second time; its main package is
# fifty lines and is not worth a link.
vet_node() { (cd hack/controlplane && CGO_ENABLED=0 "$go" vet -trimpath ./node/...); }
check "go vet of hack/controlplane/node" "fix the code" vet_node
for module in . hack/tools hack/controlplane hack/rules hack/gitops; do
	check "go.mod of $module" "run 'go mod tidy' in $module" tidy "$module"
done

exit $failed
