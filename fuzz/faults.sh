#!/usr/bin/env bash
# Plants each fault in turn and lets libFuzzer look for it: `fuzz/faults.sh [NAME...]`.
# Prints found/missed, the target, the seconds and the inputs of the last target; exit code 2 if one
# is missed. Environment: SECONDS_EACH (60; a quarter for views and exprs), TOOLCHAIN (stable),
# SANITIZER (none), SEED (1); BLIND=1 lets programs be drawn at random, without any feedback.
set -euo pipefail
cd "$(dirname "$0")/.."
toolchain=${TOOLCHAIN:-stable}
sanitizer=${SANITIZER:-none}
limit=${SECONDS_EACH:-60}
table=$(cargo run --release --quiet -- faults | awk '{ print $1, $2 }')
for name; do
  grep -q "^$name " <<<"$table" || { echo "no fault is called $name" >&2; exit 1; }
done
# The fuzz targets are built from the sources with all faults in them.
cd "$(cargo run --release --quiet -- faults --copy)"
for target in programs views exprs; do
  cargo "+$toolchain" fuzz build -s "$sanitizer" "$target"
done
[ -z "${BLIND:-}" ] || export GRADIFF_FUZZ_BLIND=${SEED:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Looks for the active fault with one target; a panic of ours is a find, nothing else is.
hunt() {
  local target=$1 seconds=$limit
  # Views and expressions run by the ten thousand a second: what they can find shows at once.
  [ "$target" = programs ] || seconds=$(((limit + 3) / 4))
  mkdir -p "$work/$target"
  # Thousands of random inputs first: mutation alone stays near the first few programs for long.
  (cd "$work/$target" && head -c 1200000 /dev/urandom | split -b 400 -a 4 -)
  : >"$work/log"
  if cargo "+$toolchain" fuzz run -s "$sanitizer" "$target" "$work/$target" -- \
    -max_total_time="$seconds" -seed="${SEED:-1}" -max_len=512 -len_control=0 \
    -artifact_prefix="$work/" -print_final_stats=1 >"$work/log" 2>&1; then
    return 1
  fi
  grep -q 'panicked at' "$work/log" && ! grep -q '^GRADIFF_' "$work/log" && return 0
  cat "$work/log" >&2
  exit 70
}

missed=0
while read -r name crate; do
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  case $crate in
    view) targets="views programs" ;;
    rewrite) targets="exprs programs" ;;
    *) targets="programs" ;;
  esac
  # Faults of the crate render show in source alone.
  backends=${GRADIFF_BACKENDS:-interp,jit}
  [ "$crate" != render ] || backends=${GRADIFF_BACKENDS:-c}
  start=$(date +%s%N)
  verdict=missed
  for target in $targets; do
    rm -rf "${work:?}/$target"
    if GRADIFF_FAULT=$name GRADIFF_BACKENDS=$backends hunt "$target"; then verdict="found by $target"; break; fi
  done
  printf '%-34s %-18s %6.1f s %9s inputs\n' "$name" "$verdict" \
    "$(( ($(date +%s%N) - start) / 100000000 ))e-1" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")"
  [ "$verdict" != missed ] || missed=$((missed + 1))
done <<<"$table"
echo "$missed missed"
[ "$missed" -eq 0 ] || exit 2
