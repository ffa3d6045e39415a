#!/bin/sh
# Asks the inner tier, by its service's name, and passes the answer on.
printf 'Content-type: text/plain\r\n\r\n'
printf 'GET /stock.txt HTTP/1.0\r\n\r\n' | nc -w 2 store 8080 | sed '1,/^\r*$/d'
