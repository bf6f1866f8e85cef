/**
 * The acceptance of the VCP runtime on AWS as far as it can be had here: the functions under the real runtime client,
 * plugins in the plugin box, sockets at the WebSocket API, and the bridge (`npm run node -- --vcp`) for what knows
 * VCP's paths only.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { join } from "node:path";
import { describe, inject } from "vitest";
import { describeVcpAcceptance, type VcpHome } from "../e2e/vcp-acceptance.ts";
import { startLambdaServer } from "../support/aws/lambda-server.ts";
import { nodeProgram } from "../support/programs.ts";
import { openGroundOfAws, toHome } from "./home.ts";
import { createLambdaFunction, passOn } from "./runtime-api.ts";
import { createSandboxes, sandboxMissing } from "./sandbox.ts";

const missing = [inject("runtimeClientMissing"), sandboxMissing() ?? ""].find((reason) => reason !== "");
if (missing !== undefined) console.log(`Skipped: the VCP runtime on AWS; ${missing}`);

const root = new URL("../../", import.meta.url);

async function startFunctionsWithBox(): Promise<VcpHome> {
  const ground = await openGroundOfAws();
  const sandboxes = createSandboxes();
  const box = createLambdaFunction({
    name: "plugin-box",
    taskRoot: join(import.meta.dirname, "../../functions/dist"),
    handler: "plugin-box.handler",
    timeoutMs: 60_000,
    memoryMb: 2_048,
    perTenant: true,
    // The bucket's server is on this machine's loopback.
    env: { TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" },
    launch: sandboxes.launcher({}),
  });
  const { AWS_ACCESS_KEY_ID: accessKeyId = "", AWS_SECRET_ACCESS_KEY: secretAccessKey = "" } = ground.services.env;
  const signer = { accessKeyId, secretAccessKey };
  const lambda = await startLambdaServer("plugin-box", (invocation) => passOn(box, invocation), signer);
  const deployment = await ground.start(
    { spreads: true, duplicates: true },
    { PLUGIN_BOX_FUNCTION: "plugin-box", AWS_ENDPOINT_URL_LAMBDA: lambda.url },
  );
  const bridges: ChildProcess[] = [];
  const home = toHome(ground, {
    url: deployment.url,
    deployments: [deployment],
    async close() {
      for (const bridge of bridges) bridge.kill("SIGKILL");
      await lambda.close();
      await box.close();
      sandboxes.close();
    },
  });
  return {
    ...home,
    output: () => `${home.output()}\n${box.output()}`,
    async openPath(path, key) {
      const bridge = await startBridge(deployment.webSocketApi.url, key);
      bridges.push(bridge.process);
      return { url: `${bridge.url}${path}/VCP_Key=${bridgeKey}` };
    },
  };
}

const bridgeKey = "key-of-the-bridge";

async function startBridge(
  url: string,
  key: string,
): Promise<{ readonly url: string; readonly process: ChildProcess }> {
  const child = spawn(process.execPath, [nodeProgram, "--url", url, "--vcp", "--port", "0"], {
    cwd: root,
    env: { PATH: process.env["PATH"] ?? "", TOOLYARD_NODE_KEY: key, TOOLYARD_VCP_KEY: bridgeKey },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const address = await new Promise<string>((found, fail) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (part: Buffer) => {
        output += part.toString("utf8");
        const [at] = /ws:\/\/127\.0\.0\.1:\d+/.exec(output) ?? [];
        if (at !== undefined) found(at);
      });
    }
    child.once("exit", () => fail(new Error(`the bridge did not start:\n${output}`)));
  });
  return { url: address, process: child };
}

describe.skipIf(missing !== undefined)("under the runtime client", () => {
  describeVcpAcceptance({ "Lambda functions, a plugin box and a WebSocket API": startFunctionsWithBox });
});
