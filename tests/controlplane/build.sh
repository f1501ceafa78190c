#!/usr/bin/env bash
# Build the test control plane once into a cache outside the checkout, and print the folder.
# In:    Go, and the modules that go.mod and go.sum pin.   Out: one line, the folder with the programs.
# What it builds: controlplane (with one link for each program in it), kwok and helm.
set -euo pipefail
cd "$(dirname "$0")"

kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)
kwok=v0.8.0
helm=v4.3.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kaiwo/controlplane
# The name says everything that the programs depend on, so that a changed version is never mistaken for a built one.
sources=$(cat go.mod go.sum main.go | sha256sum | cut -c1-12)
folder=$cache/$kubernetes-$kwok-$helm-$sources

if [ "${1:-}" = --folder ]; then # only say where: for those who must not build
  echo "$folder"
  exit
fi
mkdir -p "$folder"
exec 9>"$cache/lock"
flock 9 # two builds at once would take twice as long each

missing() {
  echo "the test control plane cannot be built: $1; tests that need it are skipped" >&2
  exit 3
}

needs() { [ ! -x "$folder/$1" ]; }

if needs controlplane || needs kwok || needs helm; then
  command -v go >/dev/null || missing "there is no Go here (go.mod asks for $(awk '$1 == "go" { print $2 }' go.mod) or newer)"
  export GOTOOLCHAIN=local GOBIN=$folder/bin.new CGO_ENABLED=0
fi
if needs controlplane; then
  echo "building Kubernetes $kubernetes (about five minutes on two cores, once)" >&2
  go mod download >&2 || missing "the Go modules cannot be fetched (is there a network?)"
  version=k8s.io/component-base/version
  parts=${kubernetes#v} && major=${parts%%.*} && minor=${parts#*.} && minor=${minor%%.*}
  go build -trimpath -buildvcs=false -o "$folder/controlplane.new" \
    -ldflags "-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=$major -X $version.gitMinor=$minor" .
  for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    ln -sf controlplane "$folder/$program"
  done
  mv "$folder/controlplane.new" "$folder/controlplane"
fi
install() {
  needs "$1" || return 0
  echo "building $1 ($2)" >&2
  go install -trimpath -ldflags "-s -w" "$2" || missing "$1 cannot be built"
  mv "$GOBIN/$1" "$folder/$1"
}
install kwok "sigs.k8s.io/kwok/cmd/kwok@$kwok"
install helm "helm.sh/helm/v4/cmd/helm@$helm"
rm -rf "$folder/bin.new"
echo "$folder"
