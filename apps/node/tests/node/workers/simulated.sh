#!/bin/sh
# Starts a simulated worker (simulated.rs): the test program, which is the parent of this process. A simulated worker
# needs no protection, so each of them is available: the check of the node prints nothing.
[ "$2" = check ] && exit
SVC_TEST_WORKER_ARGUMENTS="$*" exec "/proc/$PPID/exe" --exact workers::simulated::worker --nocapture
