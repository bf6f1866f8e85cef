/**
 * The chain of message preprocessors before the model (VCP specification s. 4.3; VCP-6). Those of the plugin box run
 * in one process, in their order; those that are held on nodes are asked there, in their place. Each fails alone: the
 * messages stay as they were before it, and it is told.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { ModuleFailed } from "./module-failed.ts";
import type { ModuleAsk } from "./node-wire.ts";
import { toMessages } from "./read-answers.ts";
import { residenceOf } from "./residence.ts";
import { runOnce, type ModuleRunDeps } from "./run-once.ts";
import { codeOf } from "./stage-error.ts";
import { tellWatchers } from "./tell.ts";
import type { Fault, Stage } from "./wire.ts";

export interface PreprocessContext extends CallContext {
  readonly signal?: AbortSignal;
  /** `vcpchatExtensions` of the request, which modules are told of. */
  readonly extensions?: JsonValue;
}

/** A whole chain in the box, and one module of it. */
const chainMs = 120_000;
const longestMs = 60_000;
/** Modules that end the whole process, each of which costs another run. */
const mostLost = 3;

/** The messages afterwards. Never throws: what fails is told, and its messages are those before it. */
export async function runPreprocessors(
  deps: AdapterDeps,
  context: PreprocessContext,
  plugins: readonly VcpPlugin[],
  messages: readonly JsonObject[],
): Promise<readonly JsonObject[]> {
  let current = messages;
  const able = plugins.filter((plugin) => !unable.has(fingerprintOf(context.config, plugin)));
  for (const part of partsOf(able, context)) {
    if (context.signal?.aborted === true) break;
    current =
      part.at === "box"
        ? await inBox(deps, context, part.plugins, current)
        : await onNode(deps, context, part.plugins, current);
  }
  return current;
}

/**
 * Modules of `hybridservice` that turned out to be no preprocessors, which their manifests do not say: by what they
 * are made of, so that nobody is asked again who cannot do it.
 */
const unable = new Set<string>();
const mostUnable = 10_000;

/** @returns whether it is none, and that is as it should be */
function isNone({ config }: CallContext, plugin: VcpPlugin | undefined, { fault }: Fault): boolean {
  if (fault !== "absent" || plugin?.manifest.pluginType !== "hybridservice") return false;
  if (unable.size >= mostUnable) unable.clear();
  unable.add(fingerprintOf(config, plugin));
  return true;
}

interface Part {
  readonly at: "box" | "node";
  readonly plugins: VcpPlugin[];
}

/** Neighbours in the order that run at the same place. */
function partsOf(plugins: readonly VcpPlugin[], { config }: CallContext): readonly Part[] {
  const parts: Part[] = [];
  for (const plugin of plugins) {
    const at = residenceOf(plugin, config);
    const last = parts.at(-1);
    if (last?.at === at) last.plugins.push(plugin);
    else parts.push({ at, plugins: [plugin] });
  }
  return parts;
}

async function inBox(
  deps: AdapterDeps,
  context: PreprocessContext,
  plugins: readonly VcpPlugin[],
  messages: readonly JsonObject[],
): Promise<readonly JsonObject[]> {
  const until = performance.now() + chainMs;
  let left = plugins;
  for (let lost = 0; left.length > 0 && lost <= mostLost; lost += 1) {
    const { extensions, signal } = context;
    try {
      const answer = await runOnce(deps, context, {
        plugins: left,
        ask: { kind: "messages", messages: [...messages], ...(extensions === undefined ? {} : { extensions }) },
        longestMs,
        timeoutMs: Math.max(1, Math.round(until - performance.now())),
        ...(signal === undefined ? {} : { signal }),
      });
      const given = answer.done?.messages === undefined ? undefined : toMessages(answer.done.messages);
      if (given !== undefined) {
        for (const stage of answer.stages) report(deps, context, left, stage);
        await tellWatchers(deps, context.tenant, answer.told);
        return given;
      }
      const { at, exit } = answer;
      if (at === undefined || exit.ended === "aborted") {
        tell(deps, context, left, `the process of the modules ended (${exit.ended}) without an answer`);
        return messages;
      }
      const failed: Fault = { fault: exit.ended === "timeout" ? "timeout" : "ended", message: "it ended the process" };
      report(deps, context, left, { plugin: at, durationMs: exit.durationMs, failed });
      left = left.filter(({ name }) => name !== at);
      if (lost === mostLost) tell(deps, context, left, "too many modules have ended the whole process");
    } catch (thrown) {
      tell(deps, context, left, toGatewayError(thrown).message);
      return messages;
    }
  }
  return messages;
}

/** One after the other; whoever is not there is left out. */
async function onNode(
  deps: AdapterDeps,
  context: PreprocessContext,
  plugins: readonly VcpPlugin[],
  messages: readonly JsonObject[],
): Promise<readonly JsonObject[]> {
  const { askOnNode } = await import("./on-node.ts");
  let current = messages;
  for (const plugin of plugins) {
    const since = performance.now();
    const { extensions, signal = new AbortController().signal } = context;
    try {
      const ask: ModuleAsk = {
        kind: "messages",
        messages: [...current],
        ...(extensions === undefined ? {} : { extensions }),
      };
      const timeoutMs = Math.min(plugin.manifest.timeoutMs, longestMs);
      const given = await askOnNode(deps, { plugin, ask, timeoutMs }, { ...context, signal });
      const read = Array.isArray(given) ? toMessages(given) : undefined;
      if (read === undefined) throw new GatewayError("tool_failed", "it gave no messages");
      current = read;
    } catch (thrown) {
      if (thrown instanceof ModuleFailed && isNone(context, plugin, thrown.fault)) continue;
      const { code, message } = toGatewayError(thrown);
      reportFailed(deps, context, {
        plugin: plugin.name,
        code,
        message,
        durationMs: Math.round(performance.now() - since),
      });
    }
  }
  return current;
}

function report(
  deps: ModuleRunDeps,
  context: PreprocessContext,
  plugins: readonly VcpPlugin[],
  { plugin: name, failed, durationMs }: Stage,
): void {
  const plugin = plugins.find((each) => each.name === name);
  if (failed === undefined || isNone(context, plugin, failed)) return;
  reportFailed(deps, context, { plugin: name, code: codeOf(failed), message: failed.message, durationMs });
}

interface Failed {
  readonly plugin: string;
  readonly code: string;
  readonly message: string;
  readonly durationMs: number;
}

function reportFailed({ log }: ModuleRunDeps, context: PreprocessContext, failed: Failed): void {
  log.log("warn", "a message preprocessor failed, and the messages stay as they were", {
    ...aboutRequest(context),
    tool: failed.plugin,
    code: failed.code,
    reason: context.redactor.redact(failed.message),
    duration_ms: failed.durationMs,
  });
}

function tell(
  { log }: ModuleRunDeps,
  context: PreprocessContext,
  plugins: readonly VcpPlugin[],
  message: string,
): void {
  log.log("error", "message preprocessors could not be run, and the messages stay as they were", {
    ...aboutRequest(context),
    tool: plugins.map(({ name }) => name).join(", "),
    reason: context.redactor.redact(message),
  });
}

function aboutRequest({ tenant, requestId, traceId }: CallContext): Readonly<Record<string, string>> {
  return { tenant, request_id: requestId, trace_id: traceId };
}
