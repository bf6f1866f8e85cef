/**
 * Runs plugins in the plugin box, a function with tenant isolation: each tenant has environments of its
 * own there. It is invoked with response streaming, so that what a plugin says first arrives at once.
 * The SDK sends nothing again by itself: whether a run may have begun decides what its failure is called.
 */
import { lookup } from "node:dns/promises";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readBoxAnswer, toBoxRequest } from "@toolyard/core/boxes/box-protocol";
import type { PluginExit, PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { withDelivery } from "@toolyard/core/errors/delivery";
import { lazily } from "@toolyard/core/once";
import { missingSetting, pause, readAwsError, reasonOf } from "./aws-error.ts";
import { clientSettings, type AwsClientOptions } from "./client-options.ts";

export interface LambdaPluginRunnerOptions {
  /** Name or ARN of the plugin-box function. */
  readonly functionName: string;
  /** What names it, for who reads an error; default: that of the plugin box. */
  readonly setting?: string;
  readonly client?: AwsClientOptions;
}

/** Lambda's limit for the payload of an invocation. */
const largestRequest = 6 * 1024 ** 2;
/** Of files in it: in base64, beside input and links. */
const carriesBytes = 3 * 1024 ** 2;
const attempts = 5;
/** Before the first byte of an answer an environment may have to be made, from an image. */
const answerMs = 60_000;
const notConnected = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/**
 * @throws GatewayError of the box; `tool_unreachable` where nothing was run, `outcome_unknown` where that
 *   is not known, `payload_too_large` where input and files do not fit into an invocation
 */
export function createLambdaPluginRunner({
  functionName,
  setting = "PLUGIN_BOX_FUNCTION",
  client: given = {},
}: LambdaPluginRunnerOptions): PluginRunner {
  const load = lazily(async () => {
    const sdk = await import("./sdk/lambda.ts");
    const region = regionOfFunction(functionName);
    const client = new sdk.LambdaClient(clientSettings({ ...region, ...given }, { answerMs, attempts: 1 }));
    return { ...sdk, client };
  });

  async function invoke(run: PluginRun, Payload: Uint8Array): Promise<AsyncIterable<InvocationEvent>> {
    const { client, InvokeWithResponseStreamCommand } = await load();
    const { tenant: TenantId, signal: abortSignal } = run;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const command = new InvokeWithResponseStreamCommand({ FunctionName: functionName, TenantId, Payload });
        const { EventStream } = await client.send(command, abortSignal === undefined ? {} : { abortSignal });
        if (EventStream === undefined) throw new Error("Lambda answered without a stream.");
        return EventStream;
      } catch (cause) {
        const isBusy = readAwsError(cause).status === 429;
        if (!isBusy || attempt === attempts || abortSignal?.aborted === true) throw cause;
        await pause(attempt + 2);
      }
    }
  }

  return {
    carriesBytes,
    async run(run) {
      const payload = Buffer.from(toBoxRequest(await withAddresses(run)), "utf8");
      if (payload.byteLength > largestRequest) {
        throw new GatewayError(
          "payload_too_large",
          `The plugin's input and files have ${payload.byteLength} bytes as the plugin box is sent them, and ${largestRequest} fit into one invocation.`,
        );
      }
      if (run.signal?.aborted === true) return aborted;
      let events: AsyncIterable<InvocationEvent>;
      try {
        events = await invoke(run, payload);
      } catch (cause) {
        if (run.signal?.aborted) return aborted;
        throw notAnswered(cause, setting);
      }
      return readBoxAnswer(bytesOf(events), run);
    },
  };
}

/** The box may have nobody to ask for a name. @throws GatewayError `tool_unreachable` */
async function withAddresses(run: PluginRun): Promise<PluginRun> {
  if (run.linked === undefined || run.linked.length === 0) return run;
  const hosts = [...new Set(run.linked.map(({ url }) => hostOf(url)))];
  try {
    const found = new Map(
      await Promise.all(
        // The box's network has addresses of the fourth version alone.
        hosts.map(async (host) => [host, await lookup(host, { all: true, family: 4 })] as const),
      ),
    );
    const addressesOf = (url: string): readonly string[] =>
      (found.get(hostOf(url)) ?? []).map(({ address }) => address);
    return { ...run, linked: run.linked.map((file) => ({ ...file, addresses: addressesOf(file.url) })) };
  } catch (cause) {
    const message = "The blob store's address was not found, so the box could not be given the files.";
    throw withDelivery(new GatewayError("tool_unreachable", message, { cause }), "not_sent");
  }
}

function hostOf(url: string): string {
  return new URL(url).hostname;
}

const aborted: PluginExit = { stdout: "", stderr: "", exitCode: null, ended: "aborted", durationMs: 0 };

interface InvocationEvent {
  readonly PayloadChunk?: { readonly Payload?: Uint8Array | undefined } | undefined;
}

/** What ends the stream without the box's last words is the protocol's to judge. */
async function* bytesOf(events: AsyncIterable<InvocationEvent>): AsyncGenerator<Uint8Array> {
  for await (const { PayloadChunk } of events) {
    if (PayloadChunk?.Payload !== undefined) yield PayloadChunk.Payload;
  }
}

function notAnswered(cause: unknown, setting: string): GatewayError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  const { status } = readAwsError(cause);
  // Lambda refused, nobody was there to take the request, or it could not even be made: nothing was run.
  if (status !== undefined || notConnected.has(code) || missingSetting(cause) !== undefined) {
    const message = `The plugin box cannot be reached (${reasonOf(cause)}); see the log, and check ${setting} and whether the process may invoke it.`;
    return withDelivery(new GatewayError("tool_unreachable", message, { cause }), "not_sent");
  }
  const message = "The plugin box was asked to run the plugin and gave no answer; what it did is not known.";
  return new GatewayError("outcome_unknown", message, { cause });
}

function regionOfFunction(name: string): { readonly region?: string } {
  const [, region] = /^arn:[\w-]+:lambda:([\w-]+):/.exec(name) ?? [];
  return region === undefined ? {} : { region };
}
