# A synchronous VCP plugin needs no more than this: read what comes, answer with one JSON object.
cat >/dev/null
printf '{"status":"success","result":{"utc":"%s"}}\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
