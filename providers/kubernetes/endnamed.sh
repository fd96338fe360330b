# Ends all processes of the runs whose folders' names begin with what standard input brings. It fails when something stays.

pause() { sleep "$1"; }
IFS= read -r d
sweep "$d"
