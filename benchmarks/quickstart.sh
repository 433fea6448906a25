#!/usr/bin/env bash
# How long a new user needs from `git clone` to a corrected file, installation included: the steps of docs/quickstart.md.
#
#   benchmarks/quickstart.sh [REPOSITORY] [FOLDER]
#
# REPOSITORY is cloned (default: this checkout); FOLDER must not exist (default: a new one in /tmp) and is kept.
set -euo pipefail

repository=${1:-$(cd "$(dirname "$0")/.." && pwd)}
folder=${2:-$(mktemp -d)/quickstart}
mkdir "$folder"
cd "$folder"
unset PYTHONPATH  # it must run from what pip installs

start=$(date +%s.%N)
step() { printf '%7.1f s  %s\n' "$(echo "$(date +%s.%N) - $start" | bc)" "$1"; }

git clone --quiet "$repository" labelloop
step "cloned"
python3 -m venv env
. env/bin/activate
pip install --quiet --disable-pip-version-check "$(grep -o 'torch==[0-9.]*' labelloop/Makefile)"
step "torch installed"
pip install --quiet --disable-pip-version-check ./labelloop
step "labelloop installed"

# The first block of Python on the page makes the file.
awk '/^```python$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' labelloop/docs/quickstart.md > make_digits.py
python make_digits.py
labelloop fit digits.csv --output-dir runs/digits
step "trained and corrected"
labelloop export runs/digits --to csv --output corrected.csv
step "a corrected file: $folder/corrected.csv"
