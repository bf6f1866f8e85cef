/**
 * `npm run node -- --url <gateway> --config node.json`: offers tools of this machine to a gateway; with `--vcp` it is
 * a bridge for nodes and clients of VCP instead (docs/nodes.md).
 */
import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { createEgress } from "@toolyard/core/blind/egress";
import { createMessageConsumers } from "@toolyard/platform/mq/message-consumers";
import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
import { createSystemClock } from "@toolyard/platform/system-clock";
import { EnvironmentError, readNodeEnvironment, type NodeEnvironment } from "./env.ts";
import { createLog } from "./log.ts";
import { NodeConfigError, readNodeConfig } from "./node/config.ts";
import { NodeRefused } from "./node/link.ts";
import { Node } from "./node/node.ts";

const graceMs = 25_000;
/** Where programs of VCP look for their server. */
const vcpPort = 6005;
const usage = [
  "Usage: npm run node -- --url https://tools.example.com --config node.json [--grace-ms 25000]",
  `       npm run node -- --url https://tools.example.com --vcp [--port ${vcpPort}] [--files DIRECTORY]…`,
].join("\n");

/** What keeps it from starting, for people. */
class UsageError extends Error {
  override readonly name = "UsageError";
}

interface Arguments {
  readonly url: string;
  /** Undefined: a bridge. */
  readonly config: string | undefined;
  readonly graceMs: number;
  readonly port: number;
  readonly directories: readonly string[];
}

function readArguments(args: readonly string[]): Arguments {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        url: { type: "string" },
        config: { type: "string" },
        "grace-ms": { type: "string" },
        vcp: { type: "boolean" },
        port: { type: "string" },
        files: { type: "string", multiple: true },
      },
    });
    const { url, config, vcp: isBridge = false, files = [] } = values;
    const port = Number(values.port ?? vcpPort);
    const grace = Number(values["grace-ms"] ?? graceMs);
    if (url === undefined || !/^(?:http|ws)s?:\/\/[^/]/.test(url))
      throw new UsageError(
        `--url: name the gateway by an address that begins with http://, https://, ws:// or wss://.\n${usage}`,
      );
    if (!isBridge && config === undefined)
      throw new UsageError(`--config: name the file that lists the tools.\n${usage}`);
    if (isBridge && config !== undefined) throw new UsageError(`--vcp: a bridge has no --config.\n${usage}`);
    if (!isBridge && (values.port !== undefined || files.length > 0))
      throw new UsageError(`--port and --files are for --vcp; a node has 'files' in its configuration.\n${usage}`);
    if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new UsageError(`--port: must be a port.\n${usage}`);
    if (!Number.isInteger(grace) || grace < 0) throw new UsageError(`--grace-ms: must be milliseconds.\n${usage}`);
    return { url, config, graceMs: grace, port, directories: files.map((directory) => resolve(directory)) };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${error instanceof Error ? error.message : "unknown"}\n${usage}`);
  }
}

async function main(args: readonly string[]): Promise<void> {
  const given = readArguments(args);
  const environment = readNodeEnvironment();
  await (given.config === undefined ? runBridge(given, environment) : runNode(given, given.config, environment));
}

async function runBridge({ url, port, directories }: Arguments, environment: NodeEnvironment): Promise<void> {
  const log = createLog({ level: environment.logLevel });
  const egress = createEgress({ allowCidrs: ["0.0.0.0/0", "::/0"] });
  const vcpKey = environment.vcpKey ?? randomBytes(24).toString("base64url");
  const { startVcpBridge } = await import("./node/vcp-bridge.ts");
  const bridge = await startVcpBridge({
    url,
    key: environment.key,
    port,
    vcpKey,
    directories,
    egress,
    log,
    clock: createSystemClock(),
    runner: createProcessPluginRunner({ path: environment.path, log }),
  }).catch((thrown: unknown) => {
    throw new UsageError(`--port: cannot listen on ${port} (${thrown instanceof Error ? thrown.message : "unknown"}).`);
  });
  const shown = environment.vcpKey === undefined ? vcpKey : "the one in TOOLYARD_VCP_KEY";
  await new Promise<void>((stopped) => {
    process.once("SIGTERM", () => stopped()).once("SIGINT", () => stopped());
    // Last: whoever has read it may end the process at once.
    process.stdout.write(`Bridge for VCP on ws://127.0.0.1:${bridge.port} to ${url}; VCP_Key: ${shown}\n`);
  });
  await bridge.stop();
  await egress.close();
  await log.flush();
}

async function runNode({ url, graceMs: grace }: Arguments, path: string, environment: NodeEnvironment): Promise<void> {
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

// A full disk, or nobody at the other end of the pipe, is no reason to end, nor to leave what is held alone.
process.stdout.on("error", () => undefined);
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
