#!/usr/bin/env bash
# Builds the image of nm-reconciler without a Docker engine: an archive that `docker load`, `podman load`,
# `ctr images import`, `kind load image-archive` and `skopeo copy oci-archive:` read. The Dockerfile makes the same.
#
#   reconciler/image.sh [amd64|arm64]      by default the architecture of this machine
#
# It needs cargo with the musl target of that architecture, a C compiler for it, and GNU tar. The same sources make the
# same archive.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-$(uname -m)}" in
    amd64 | x86_64) architecture=amd64 machine=x86_64 ;;
    arm64 | aarch64) architecture=arm64 machine=aarch64 ;;
    *) echo "image.sh: no such architecture: ${1:-$(uname -m)}; amd64 and arm64 are known" >&2 && exit 2 ;;
esac
target="$machine-unknown-linux-musl"
cargo="${CARGO:-cargo}"
if [ "$machine" = "$(uname -m)" ]; then
    # What is compiled from C asks nothing of a C library, so the machine's own compiler will do.
    compiler="CC_${target//-/_}"
    export "$compiler=${!compiler:-cc}"
fi
"$cargo" build --locked --release -p nm-reconciler -p kubectl-nm --target "$target"
id=$("$cargo" pkgid -p nm-reconciler)
version="${id##*[#@]}"
name="localhost/nm-reconciler:$version"
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
epoch="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
built="${CARGO_TARGET_DIR:-target}/$target/release"
archive="${CARGO_TARGET_DIR:-target}/nm-reconciler-$version-$architecture.tar"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root" "$work/image/blobs/sha256"
# The plugin runs rolls in the cluster.
install -m 0755 "$built/nm-reconciler" "$built/kubectl-nm" "$work/root/"
install -m 0644 LICENSE "$work/root/LICENSE"
pack() { tar --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -cf "$1" -C "$2" "${@:3}"; }
# Files a blob under its digest, and says the digest and its size as a descriptor has them.
blob() {
    local digest
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    mv "$1" "$work/image/blobs/sha256/$digest"
    printf '"digest":"sha256:%s","size":%s' "$digest" "$(stat -c %s "$work/image/blobs/sha256/$digest")"
}
digest() { grep -o '[0-9a-f]\{64\}' <<<"$1"; }

pack "$work/layer" "$work/root" LICENSE kubectl-nm nm-reconciler
layer=$(blob "$work/layer")
cat >"$work/config" <<JSON
{"architecture":"$architecture","os":"linux","created":"$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)",
"config":{"User":"65532:65532","Entrypoint":["/nm-reconciler"],"ExposedPorts":{"8080/tcp":{},"9443/tcp":{}},"Labels":{
"org.opencontainers.image.title":"nm-reconciler",
"org.opencontainers.image.description":"Cordons nodes, evicts their pods and returns them to service",
"org.opencontainers.image.licenses":"Apache-2.0",
"org.opencontainers.image.version":"$version",
"org.opencontainers.image.revision":"$revision"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$(digest "$layer")"]}}
JSON
config=$(blob "$work/config")
cat >"$work/manifest" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},
"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar",$layer}]}
JSON
manifest=$(blob "$work/manifest")
cat >"$work/image/index.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
{"mediaType":"application/vnd.oci.image.manifest.v1+json",$manifest,
"platform":{"architecture":"$architecture","os":"linux"},
"annotations":{"io.containerd.image.name":"$name","org.opencontainers.image.ref.name":"$version"}}]}
JSON
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
# What Docker reads where it does not read the index.
cat >"$work/image/manifest.json" <<JSON
[{"Config":"blobs/sha256/$(digest "$config")","RepoTags":["$name"],"Layers":["blobs/sha256/$(digest "$layer")"]}]
JSON
pack "$archive" "$work/image" blobs index.json manifest.json oci-layout
echo "$archive"
