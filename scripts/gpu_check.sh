#!/usr/bin/env bash
# Everything that only a card can show, in one command:
#
#     scripts/gpu_check.sh [-m MODEL.gguf] [--synthetic SHAPE[:LAYERS] | --synthetic none] [--cpu-tokens N]
#     scripts/gpu_check.sh --pack FOLDER      builds, and gathers all that a machine without compilers needs
#     scripts/gpu_check.sh --packed FOLDER    the same checks there
#
# Builds, runs every operation on the card against the processor, proves plain and speculative decoding on one device and on
# two contexts of it, bit by bit, against the processor; then measures tokens per second, T(n), and bytes per second against
# a copy inside the device. Needs NVIDIA's driver, and its run-time compiler (libnvrtc) that knows the card.
#
# Exit code: 0 if no bit differs; 1 if one does or a check fails; 2 for bad flags or a machine without a card.
set -euo pipefail
here="$PWD"
cd "$(dirname "$0")/.."

model=()
synthetic=qwen3.5-35b-a3b:4
tokens=96
pack=""
folder=""

fail() {
    printf 'gpu_check.sh: %s\n' "$*" >&2
    exit 2
}

# A path as it was meant where the script was called.
path() {
    case "$1" in
        /*) printf '%s' "$1" ;;
        *) printf '%s/%s' "$here" "$1" ;;
    esac
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1: expected a value, or one of -m, --synthetic, --cpu-tokens, --pack, --packed"
    case "$1" in
        -m) model=(-m "$(path "$2")") ;;
        --synthetic) synthetic="$2" ;;
        --cpu-tokens) tokens="$2" ;;
        --pack) pack="$(path "$2")" ;;
        --packed) folder="$(path "$2")" ;;
        *) fail "$1: expected -m, --synthetic, --cpu-tokens, --pack or --packed" ;;
    esac
    shift 2
done

section() {
    printf '\n== %s\n' "$*"
}

# The executable of a test of a package.
executable() {
    cargo test --release --no-run -p "$1" --test "$2" 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' | tail -n 1
}

# Builds, and puts the program and its tests into a folder.
gather() {
    command -v cargo >/dev/null || fail "cargo is not installed: build elsewhere with --pack, and run here with --packed"
    cargo build --release
    mkdir -p "$1"
    cp "${CARGO_TARGET_DIR:-target}/release/verbatim" "$1/verbatim"
    cp "$(executable kernels card)" "$1/card"
    cp "$(executable verbatim operations)" "$1/operations"
}

if [ -n "$pack" ]; then
    gather "$pack"
    # Found beside the program. One that knows every card up to the H200 serves where the machine has none.
    library="$pack/fetched/nvidia/cuda_nvrtc/lib"
    if python3 scripts/kernel_table.py --fetch "$pack/fetched" --only select --brief; then
        mv "$library"/libnvrtc* "$pack"
    else
        echo "gpu_check.sh: no run-time compiler is packed: the other machine needs one" >&2
    fi
    rm -rf "$pack/fetched"
    printf 'packed into %s\n' "$pack"
    exit 0
fi

if [ -z "$folder" ]; then
    section build
    folder="$(mktemp -d)"
    trap 'rm -rf "$folder"' EXIT
    gather "$folder"
fi
verbatim="$folder/verbatim"
[ -x "$verbatim" ] || fail "$verbatim is missing: was the folder made by --pack?"

section machine
"$verbatim" doctor
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,pstate,clocks.sm,clocks.mem,power.limit,temperature.gpu --format=csv || true
fi
case "$("$verbatim" doctor | tail -n 1)" in
    'runs on  cuda:0,'*) ;;
    *) fail "no card can be used here; what is missing, and how to get it, stands above" ;;
esac

# Runs a check; what fails is told at the end, so that the rest is still seen.
broken=()
check() {
    local name="$1"
    shift
    section "$name"
    local begun="$SECONDS"
    "$@" || broken+=("$name")
    printf '(%d s)\n' $((SECONDS - begun))
}

check "kernels of the emulator's tests" "$folder/card" --nocapture
check "operations: card and processor" "$folder/operations" --nocapture cuda

# Each compares plain decoding with the processor's, and every drafter's with that.
for device in cuda:0 cuda:0,0; do
    check "decoding on $device: plain and speculative, against the processor" \
        "$verbatim" check --device "$device" "${model[@]}" -n "$tokens"
done

for device in cuda:0 cuda:0,0; do
    check "tokens per second on $device" "$verbatim" bench --device "$device" "${model[@]}" --drafts off,auto
    check "T(n) and bytes per second on $device" "$verbatim" bench --device "$device" "${model[@]}" --passes
done
if [ "$synthetic" != none ]; then
    check "T(n) of $synthetic in random weights on cuda:0" \
        "$verbatim" bench --device cuda:0 --synthetic "$synthetic" --profile
fi

section summary
if [ ${#broken[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${broken[@]}"
    exit 1
fi
echo "no bit differs; all checks passed"
