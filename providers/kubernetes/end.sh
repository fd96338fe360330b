# Ends the run whose files are in the folder that standard input names, and keeps it from starting if it has not yet.
# It fails when something stays.

pause() { sleep "$1"; }
IFS= read -r d
mkdir -p "$d" && : >"$d/cancelled" || exit 1
sweep "$d/mark"
