# A static VCP plugin: whatever it prints becomes the value of its placeholders.
load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo unknown)
free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo 2>/dev/null)
echo "$(date -u +%Y-%m-%dT%H:%M:%SZ): load ${load:-unknown}, ${free:-unknown} kB of memory free"
