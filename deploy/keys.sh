#!/bin/sh
# Makes every key and certificate of a deployment, once:
#
#   deploy/keys.sh DIR
#
#   DIR/control   what a control node has: keys that sign, and its certificate
#   DIR/edge      what an edge has: public keys, session and list keys, its certificate
#   DIR/ca.key    signs certificates of more nodes; keep it off every node
#
# NAMES are the hosts of control nodes (default control), PROGRAM is dispatch.
set -eu
umask 077
dir=$1
program=${PROGRAM:-dispatch}
names=${NAMES:-control}

if [ -e "$dir/edge/fleet.crt" ]; then
  echo "$dir has keys already"
  exit 0
fi
mkdir -p "$dir/control" "$dir/edge"
"$program" keys new "$dir/control"
"$program" keys export --publisher-key-file "$dir/control/publisher.jwks" --record-key-file "$dir/control/record.jwks" >"$dir/edge/trust.jwks"
cp "$dir/control/session.jwks" "$dir/control/list.jwks" "$dir/edge/"

alternatives=IP:127.0.0.1
for name in $names; do alternatives="$alternatives,DNS:$name"; done
openssl req -x509 -newkey ed25519 -nodes -keyout "$dir/ca.key" -out "$dir/ca.crt" -days 3650 -subj "/CN=dispatch fleet" 2>/dev/null
for node in control edge; do
  openssl req -x509 -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -newkey ed25519 -nodes -keyout "$dir/$node/fleet.key" -out "$dir/$node/fleet.crt" \
    -days 825 -subj "/CN=$node" -addext "subjectAltName=$alternatives" -addext "extendedKeyUsage=serverAuth,clientAuth" \
    -addext "basicConstraints=critical,CA:FALSE" 2>/dev/null
  cp "$dir/ca.crt" "$dir/$node/"
done
