/**
 * HTTP: `chat` serves the routes that stream, for up to 15 minutes, `api` all others, which may say nothing for five. Both
 * answer by streaming, because only streamed answers may take longer than 29 s without a raised quota.
 */
import { gateway } from "./environment.ts";
import { createFunction } from "./function.ts";
import { pushFrames, rest } from "./gateways.ts";
import { wrapTenantKeys } from "./keys.ts";
import { seconds } from "./limits.ts";
import { migrated } from "./migration.ts";
import { runCode } from "./code-box.ts";
import { runPlugins } from "./plugin-box.ts";
import { sendCalls } from "./queue.ts";
import { longPaths, toPathTable } from "./routes.ts";
import { useBlobs } from "./storage.ts";

const may = [...useBlobs, ...wrapTenantKeys, sendCalls, pushFrames, runPlugins, runCode];

export const chat = createFunction("Chat", {
  bundle: "chat",
  description: "Routes that stream: chat and MCP",
  seconds: seconds.chat,
  memoryMb: 1024,
  variables: gateway,
  may,
  streaming: true,
  after: [migrated],
});

export const api = createFunction("Api", {
  bundle: "api",
  description: "Every route that answers whole",
  seconds: seconds.api,
  memoryMb: 1024,
  variables: gateway,
  may,
  streaming: true,
  after: [migrated],
});

function serve(path: string, to: sst.aws.Function, longest: number): void {
  rest.route(`ANY ${path}`, to.arn, {
    streaming: true,
    transform: { integration: { timeoutMilliseconds: longest * 1_000 } },
  });
}

const paths = toPathTable(longPaths);
for (const path of paths.long) serve(path, chat, seconds.chat);
for (const path of paths.rest) serve(path, api, seconds.api);
rest.deploy();
