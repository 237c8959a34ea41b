#!/usr/bin/env bash
# Packs the plugin for krew: an archive for each platform, and the manifest by which krew installs them, rendered from the
# template krew/nm.yaml as krew-release-bot does.
#
#   krew/package.sh                                   builds for every platform that this machine can build for
#   krew/package.sh linux-amd64 windows-arm64         builds for these
#   krew/package.sh --binary FILE linux-amd64         packs a program that is built already
#   krew/package.sh --manifest                        packs nothing; every archive must be there
#   --out FOLDER                                      where the archives and nm.yaml go; target/krew if not given
#   --url URL                                         where the archives are served; the releases of the homepage if not given
#   --index FOLDER                                    also puts the manifest into an index of your own, as plugins/nm.yaml
#
# The manifest covers the archives of this version in the folder; those that are missing are reported. It needs cargo with
# the platforms' targets, cargo-zigbuild for other platforms than this machine's, and GNU tar. The same programs and
# commit make the same archives.
set -euo pipefail
from="$PWD"
cd "$(dirname "$0")/.."
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$from/$1" ;; esac; }

platforms="linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64"
out="${CARGO_TARGET_DIR:-target}/krew"
binary= only_manifest= wanted= base= index=
die() { echo "package.sh: $1" >&2 && exit "${2:-2}"; }
while [ $# -gt 0 ]; do
    case "$1" in
        --binary) binary=$(absolute "${2:?--binary needs a file}") && shift ;;
        --out) out=$(absolute "${2:?--out needs a folder}") && shift ;;
        --url) base="${2:?--url needs the address of a folder}" && base="${base%/}" && shift ;;
        --index) index=$(absolute "${2:?--index needs a folder}") && shift ;;
        --manifest) only_manifest=yes ;;
        *) case " $platforms " in *" $1 "*) wanted="$wanted $1" ;; *) die "no such platform: $1; known: $platforms" ;; esac ;;
    esac
    shift
done
[ -z "$binary" ] || [ -n "$wanted" ] || die "--binary needs to know the platform that it is for"

cargo="${CARGO:-cargo}"
id=$("$cargo" pkgid -p kubectl-nm)
tag="v${id##*[#@]}"
epoch="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
tar=tar && ! command -v gtar >/dev/null || tar=gtar
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

target() {
    case "$1" in
        linux-amd64) echo x86_64-unknown-linux-musl ;;
        linux-arm64) echo aarch64-unknown-linux-musl ;;
        darwin-amd64) echo x86_64-apple-darwin ;;
        darwin-arm64) echo aarch64-apple-darwin ;;
        windows-amd64) echo x86_64-pc-windows-gnu ;;
        windows-arm64) echo aarch64-pc-windows-gnullvm ;;
    esac
}

# Whether the machine's own compiler makes programs for a platform. Xcode's makes them for both of macOS's.
is_native() {
    case "$1 $(uname -s) $(uname -m)" in
        "linux-amd64 Linux x86_64" | "linux-arm64 Linux aarch64" | "darwin-"*" Darwin "*) ;;
        *) return 1 ;;
    esac
}

can_build() {
    [ -d "$(rustc --print target-libdir --target "$(target "$1")" 2>/dev/null)" ] || return 1
    is_native "$1" && return
    # zig has no frameworks of macOS, which the program needs to read the system's certificates.
    case "$1" in darwin-*) return 1 ;; *) command -v cargo-zigbuild >/dev/null ;; esac
}

# Builds for a platform and prints the path of the program.
build() {
    local target how=zigbuild compiler
    target=$(target "$1")
    if is_native "$1"; then
        how=build compiler="CC_${target//-/_}"
        # What is compiled from C asks nothing of a C library, so the machine's own compiler will do.
        export "$compiler=${!compiler:-cc}"
    fi
    "$cargo" "$how" --locked --release -p kubectl-nm --target "$target" >&2
    echo "${CARGO_TARGET_DIR:-target}/$target/release/$(program "$1")"
}

program() { case "$1" in windows-*) echo kubectl-nm.exe ;; *) echo kubectl-nm ;; esac; }

# Packs a program for a platform: LICENSE, without which krew's index takes no plugin, and the program.
pack() {
    local archive="kubectl-nm-$tag-$1.tar.gz" folder="$work/$1"
    mkdir "$folder"
    install -m 0644 LICENSE "$folder/LICENSE"
    install -m 0755 "$2" "$folder/$(program "$1")"
    "$tar" --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -cf - \
        -C "$folder" LICENSE "$(program "$1")" | gzip -9n >"$work/$archive"
    mv "$work/$archive" "$out/$archive"
    echo "$out/$archive"
}

digest() { { sha256sum "$1" 2>/dev/null || shasum -a 256 "$1"; } | cut -d' ' -f1; }

# The template with its two forms filled in, without the platforms that have no archive, which go to the file `missing`.
render() {
    local line url archive left_out=
    while IFS= read -r line; do
        case "$line" in
            *'{{addURIAndSha "'*)
                url="${line#*'{{addURIAndSha "'}" && url="${url%%\"*}" && url="${url//'{{ .TagName }}'/$tag}"
                archive="$out/${url##*/}" left_out=
                url="${base:-${url%/*}}/${url##*/}"
                if [ -f "$archive" ]; then
                    printf '%s\n    sha256: %s\n' "${line%%'{{'*}uri: $url" "$(digest "$archive")"
                else
                    left_out=yes && echo "${url##*/}" >>"$work/missing"
                fi
                ;;
            *) [ -n "$left_out" ] || printf '%s\n' "${line//'{{ .TagName }}'/$tag}" ;;
        esac
    done <krew/nm.yaml
}

if [ -z "$only_manifest" ]; then
    if [ -z "$wanted" ]; then
        for platform in $platforms; do
            ! can_build "$platform" || wanted="$wanted $platform"
        done
        [ -n "$wanted" ] || die "no platform's target is installed: rustup target add $(target linux-amd64)" 1
    fi
    for platform in $wanted; do
        built="$binary"
        [ -n "$built" ] || built=$(build "$platform")
        pack "$platform" "$built"
    done
fi
: >"$work/missing"
render >"$work/nm.yaml"
if [ -s "$work/missing" ]; then
    [ -z "$only_manifest" ] || die "not in $out: $(tr '\n' ' ' <"$work/missing")" 1
    echo "package.sh: left out of nm.yaml, because they are not in $out: $(tr '\n' ' ' <"$work/missing")" >&2
fi
mv "$work/nm.yaml" "$out/nm.yaml"
echo "$out/nm.yaml"
if [ -n "$index" ]; then
    mkdir -p "$index/plugins"
    cp "$out/nm.yaml" "$index/plugins/nm.yaml"
    echo "$index/plugins/nm.yaml"
fi
