# The server form as an image: routes, workers and tick in one process (docs/deploy.md, "Containers").
#   docker build -t toolyard .
# `npm run test:container` carries these steps out without an engine and looks at what comes of them.

FROM node:24.21.0-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json require-node.mjs ./
COPY functions/package.json functions/
COPY packages/core/package.json packages/core/
COPY packages/db/package.json packages/db/
COPY packages/platform/package.json packages/platform/
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund
COPY functions functions
COPY packages packages
RUN node functions/build/server.ts
# Copied with its owner: the process must be able to write into it.
RUN mkdir data

FROM node:24.21.0-bookworm-slim
# One arena for all threads, small young and slowly growing old objects: half the memory for as much CPU. Code that was
# optimised keeps what it was made of: V8 would drop it after six collections, and begin anew.
ENV MALLOC_ARENA_MAX=1
# Names are looked up in half of these threads: a name whose servers are silent holds one.
ENV UV_THREADPOOL_SIZE=16
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8787 TOOLYARD_DATA_DIR=/data
# bubblewrap: the wall of plugins and the box of `run_code`, where the engine allows it (docs/native-tools.md); programs of
# models and most plugins are Python.
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY --from=build /app/functions/dist/server/bin bin
COPY --from=build /app/functions/dist/server/migrations migrations
COPY --from=build --chown=node:node /app/data /data
USER node
VOLUME /data
EXPOSE 8787
# Alive, not ready: a database that is away for a while is no reason to kill what waits for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/health/live`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# Node itself gets the signals: SIGTERM drains and ends with 0 within 28 s.
STOPSIGNAL SIGTERM
CMD ["node", "--max-semi-space-size=16", "--heap-growing-percent=30", "--no-flush-bytecode", "bin/server.mjs"]
