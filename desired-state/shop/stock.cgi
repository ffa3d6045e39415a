#!/bin/sh
# Asks the inner tier, by its service's name, and passes the answer on.
echo "Content-type: text/plain"
echo
wget -q -T 2 -O - http://store:8080/stock.txt
