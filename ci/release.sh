#!/usr/bin/env bash
# Checks the crates as users get them: licences and sources of dependencies, the oldest dependency versions that they
# declare, the contents of each package and that it builds alone, and the public API.
#   ci/release.sh              checks
#   ci/release.sh --bless      writes the public API to ci/api/, for review, and checks the licences and sources anew
#   ci/release.sh --advisories asks the RustSec database, on the network, about the dependencies
# Tools are built once and kept in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
unset CARGO_TARGET_DIR
# The crates that users depend on. The other crates are parts of these.
offered=(samite samite-matching)

# rustdoc's JSON output is unstable, so RUSTC_BOOTSTRAP enables it. Its format follows the toolchain's version.
interface() {
    RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet --locked --target-dir "$target/api" -p "$1" --lib --all-features -- \
        -Z unstable-options --output-format json
    "$target/api/debug/samite-api" "$target/api/doc/${1//-/_}.json"
}

deny() {
    local version=0.20.2 root=$target/tools/deny
    if [[ ! -x $root-$version/bin/cargo-deny ]]; then
        # Unoptimized, cargo-deny builds in a third of the time, and still runs for only a second.
        cargo install --quiet --debug --locked --no-default-features --root "$root-$version" \
            --target-dir "$target/tools/build" "cargo-deny@$version"
        rm -rf "$target/tools/build"
    fi
    local folder=$1
    shift
    "$root-$version/bin/cargo-deny" --log-level error --manifest-path "$folder/Cargo.toml" check "$@"
}

if [[ ${1:-} == --advisories ]]; then
    deny . advisories
    exit
fi

echo 'release.sh: what is offered'
cargo build --quiet --locked --manifest-path ci/api/Cargo.toml --target-dir "$target/api"
for crate in "${offered[@]}"; do
    if [[ ${1:-} == --bless ]]; then
        interface "$crate" >"ci/api/$crate.txt"
    elif ! interface "$crate" | diff "ci/api/$crate.txt" -; then
        echo "release.sh: what $crate offers has changed: \`ci/release.sh --bless\`, and a line in CHANGELOG.md" >&2
        exit 1
    fi
done

# The tool for this takes two minutes to build, and its answer depends on these files alone.
mapfile -t rules < <(git ls-files deny.toml '*Cargo.toml' '*Cargo.lock')
echo 'release.sh: licences, sources, versions'
if [[ ${1:-} == --bless ]] || ! sha256sum --status --check ci/deny.sha256; then
    deny . bans licenses sources
    # These tools are not published, so only the sources of their dependencies are checked.
    for tool in docs ci/api ci/fuzz; do
        deny "$tool" sources
    done
fi
if [[ ${1:-} == --bless ]]; then
    sha256sum "${rules[@]}" >ci/deny.sha256
    exit
elif ! sha256sum --status --check ci/deny.sha256; then
    echo 'release.sh: the files in ci/deny.sha256 have changed, and hold to the rules: `ci/release.sh --bless`' >&2
    exit 1
fi

echo 'release.sh: the oldest dependencies'
oldest=$target/oldest/source
rm -rf "$oldest"
mkdir -p "$oldest"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp -P --parents -t "$oldest"
(
    cd "$oldest"
    RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
    cargo check --quiet --locked --workspace --all-features --target-dir ..
)

echo 'release.sh: packages'
# Do not use `cargo publish --dry-run`, which reuses an earlier unpacked package of the same version.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
crates=(
    samite-os samite-fabric-sys samite-fabric samite-matching samite-p2p samite-rma samite-coll samite-control
    samite samite-launch samite-cli
)
cargo package --quiet --locked --no-verify --allow-dirty --target-dir "$target" "${crates[@]/#/--package=}"
unpacked=$target/unpacked
rm -rf "$unpacked"
mkdir "$unpacked"
printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n[patch.crates-io]\n' >"$unpacked/Cargo.toml"
for crate in "${crates[@]}"; do
    tar -xf "$target/package/$crate-$version.crate" -C "$unpacked"
    echo "$crate = { path = \"$crate-$version\" }" >>"$unpacked/Cargo.toml"
    for file in README.md LICENSE-MIT LICENSE-APACHE; do
        [[ -s $unpacked/$crate-$version/$file ]] || { echo "release.sh: the package of $crate has no $file" >&2; exit 1; }
    done
    for field in description license repository readme keywords categories; do
        grep -q "^$field = ." "$unpacked/$crate-$version/Cargo.toml" ||
            { echo "release.sh: the manifest of $crate has no $field" >&2; exit 1; }
    done
done
cp Cargo.lock "$unpacked"
(cd "$unpacked" && cargo check --quiet --workspace --all-features --target-dir "$target")
echo 'release.sh: all as it should be'
