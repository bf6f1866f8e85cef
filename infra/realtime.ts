/** WebSocket: one function for connecting, disconnecting and every frame, told apart in code. */
import { gateway } from "./environment.ts";
import { createFunction } from "./function.ts";
import { pushFrames, realtime } from "./gateways.ts";
import { wrapTenantKeys } from "./keys.ts";
import { seconds } from "./limits.ts";
import { migrated } from "./migration.ts";
import { sendCalls } from "./queue.ts";
import { useBlobs } from "./storage.ts";

export const ws = createFunction("Ws", {
  bundle: "ws",
  description: "WebSocket connections and frames",
  seconds: seconds.realtime,
  memoryMb: 512,
  variables: gateway,
  may: [...useBlobs, ...wrapTenantKeys, sendCalls, pushFrames],
  after: [migrated],
});

// An ARN, or each route would make a function of its own.
for (const route of ["$connect", "$disconnect", "$default"]) realtime.route(route, ws.arn);
