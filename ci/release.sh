#!/usr/bin/env bash
# What must hold of the crates as others get them: licences and sources of what they depend on, the oldest versions that
# they say they can be built with, what is in each package and that it builds alone, and what they offer to users.
#   ci/release.sh              checks
#   ci/release.sh --bless      writes what is offered to ci/api/, to be looked at in review
#   ci/release.sh --advisories asks the RustSec database, which is on the network, about the dependencies
# Tools are built once, and kept in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
unset CARGO_TARGET_DIR
# What users depend on. The others are its parts.
offered=(samite samite-matching)

# rustdoc's JSON is not stable yet, so stable tools are asked as if they were not; the version is that of the tool.
interface() {
    RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet --locked --target-dir "$target/api" -p "$1" --lib --all-features -- \
        -Z unstable-options --output-format json
    "$target/api/debug/samite-api" "$target/api/doc/${1//-/_}.json"
}

deny() {
    local version=0.20.2 root=$target/tools/deny
    if [[ ! -x $root-$version/bin/cargo-deny ]]; then
        # Not optimized: built in a third of the time, and it runs for a second.
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
[[ ${1:-} != --bless ]] || exit 0

echo 'release.sh: licences, sources, versions'
deny . bans licenses sources
# Tools, which are not passed on.
for tool in docs ci/api ci/fuzz; do
    deny "$tool" sources
done

echo 'release.sh: the oldest dependencies'
oldest=$target/oldest/source
rm -rf "$oldest"
mkdir -p "$oldest"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp -P --parents -t "$oldest"
(
    cd "$oldest"
    RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
    cargo check --quiet --locked --workspace --all-targets --all-features --target-dir ..
)

echo 'release.sh: packages'
# Not by `cargo publish --dry-run`: that takes what it has unpacked once for the same version's as it is now.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
crates=(
    samite-os samite-fabric-sys samite-fabric samite-matching samite-p2p samite-control samite samite-launch samite-cli
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
done
cp Cargo.lock "$unpacked"
(cd "$unpacked" && cargo check --quiet --workspace --all-features --target-dir "$target")
echo 'release.sh: all as it should be'
