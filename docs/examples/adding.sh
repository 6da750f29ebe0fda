#!/bin/sh
# Adds up 1, 2, 3, ... Asked by SIGTERM it writes how far it is, and exits with 85: "start me again".
state="$RECLAIMNET_CHECKPOINT_DIRECTORY/state"
n=0 sum=0 asked=
if [ -e "$state" ]; then read -r n sum < "$state"; fi
trap 'asked=yes' TERM
echo "begins at $n"
while [ "$n" -lt "$RECLAIMNET_STEPS" ]; do
    n=$((n + 1)) sum=$((sum + n))
    echo "$n" > "$RECLAIMNET_STEP_FILE"
    if [ $((n % 10)) -eq 0 ]; then echo "step $n: $sum"; fi
    sleep 0.05
    if [ "$asked" ]; then
        echo "$n $sum" > "$state"
        exit 85
    fi
done
echo "the sum is $sum"
