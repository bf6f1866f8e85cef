/** `npm run node -- --url <gateway> --config node.json`: offers tools of this machine to a gateway (docs/nodes.md). */
import { parseArgs } from "node:util";
import { createEgress } from "@toolyard/core/blind/egress";
import { createMessageConsumers } from "@toolyard/platform/mq/message-consumers";
import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
import { EnvironmentError, readNodeEnvironment } from "./env.ts";
import { createLog } from "./log.ts";
import { NodeConfigError, readNodeConfig } from "./node/config.ts";
import { NodeRefused } from "./node/link.ts";
import { Node } from "./node/node.ts";

const graceMs = 25_000;
const usage = "Usage: npm run node -- --url https://tools.example.com --config node.json [--grace-ms 25000]";

/** What keeps it from starting, for people. */
class UsageError extends Error {
  override readonly name = "UsageError";
}

interface Arguments {
  readonly url: string;
  readonly config: string;
  readonly graceMs: number;
}

function readArguments(args: readonly string[]): Arguments {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { url: { type: "string" }, config: { type: "string" }, "grace-ms": { type: "string" } },
    });
    const { url, config } = values;
    const grace = Number(values["grace-ms"] ?? graceMs);
    if (url === undefined || !/^(?:http|ws)s?:\/\/[^/]/.test(url))
      throw new UsageError(`--url: name the gateway.\n${usage}`);
    if (config === undefined) throw new UsageError(`--config: name the file that lists the tools.\n${usage}`);
    if (!Number.isInteger(grace) || grace < 0) throw new UsageError(`--grace-ms: must be milliseconds.\n${usage}`);
    return { url, config, graceMs: grace };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${error instanceof Error ? error.message : "unknown"}\n${usage}`);
  }
}

async function main(args: readonly string[]): Promise<void> {
  const { url, config: path, graceMs: grace } = readArguments(args);
  const environment = readNodeEnvironment();
  const config = await readNodeConfig(path);
  const log = createLog({ level: environment.logLevel });
  // The gateway's own links only, which may be on this machine or a private network.
  const egress = createEgress({ allowCidrs: ["0.0.0.0/0", "::/0"] });
  const node = new Node({
    url,
    key: environment.key,
    config,
    egress,
    consumers: createMessageConsumers({ egress }),
    log,
    path: environment.path,
    runner: createProcessPluginRunner({ path: environment.path, log }),
    graceMs: grace,
    onRegistered: () => process.stdout.write(`Node '${config.name}' offers its tools at ${url}.\n`),
  });
  process.once("SIGTERM", () => void node.stop()).once("SIGINT", () => void node.stop());
  await node.run();
  await egress.close();
  await log.flush();
}

try {
  await main(process.argv.slice(2));
  process.exit(0);
} catch (error) {
  const isExplained =
    error instanceof UsageError ||
    error instanceof EnvironmentError ||
    error instanceof NodeConfigError ||
    error instanceof NodeRefused;
  process.stderr.write(`${isExplained ? error.message : String(error)}\n`);
  process.exit(1);
}
