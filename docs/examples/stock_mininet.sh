#!/bin/sh
# Debian's Mininet builds a campus with its own Open vSwitch class, and the project's controller programs it as a remote one:
#     sudo docs/examples/stock_mininet.sh example:twocores --test pingall
# What follows the campus goes to `mn`. Daemons, database and sockets of Open vSwitch are this run's own, in the namespace it is
# started in; the system's are not needed and not touched. Another's controller: CONTROLLER=".venv/bin/python APP.py".
set -e
campus=$1
shift
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
export OVS_RUNDIR="$folder" OVS_LOGDIR="$folder" OVS_DBDIR="$folder"
$python -m topologies.as_mininet "$campus" > "$folder/topology.json"

started=
trap 'kill $started; wait; rm -r "$folder"' EXIT
trap 'exit 1' INT TERM
${CONTROLLER:-$python -m controller.openflow "$folder/topology.json"} > "$folder/controller.log" 2>&1 & started=$!
ovsdb-tool create "$folder/conf.db" /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server "$folder/conf.db" --remote="punix:$folder/db.sock" -vconsole:off --log-file & started="$started $!"
while [ ! -S "$folder/db.sock" ]; do sleep 0.1; done
ovs-vsctl --no-wait init -- set Open_vSwitch . other_config:userspace-tso-enable=true
ovs-vswitchd "unix:$folder/db.sock" -vconsole:off --log-file & started="$started $!"

# `user`: a kernel without Open vSwitch's module does; `kernel` is Mininet's own default
${MN:-mn} --custom topologies/as_mininet.py --topo "campus,$campus" --controller remote,port=6653 \
    --switch "ovs,datapath=${DATAPATH:-user},protocols=OpenFlow13" "$@"
