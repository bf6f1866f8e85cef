/**
 * Runs modules in the plugin box (VCP-6): all of a request's in one process, with the program that loads them laid
 * beside them. A module that ends the whole process costs one more run without it.
 */
import { randomBytes } from "node:crypto";
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import type { PluginExit } from "../../ports/plugin-runner.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { openConfiguration } from "../plugins/configuration.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";
import { foldersOf } from "../plugins/run.ts";
import { readOnceAnswers } from "./read-answers.ts";
import type { CarriedModule, OnceQuestion, Stage, Told } from "./wire.ts";

export type ModuleRunDeps = Pick<AdapterDeps, "sealer" | "blobs" | "tenantPlugins" | "publicUrl" | "log">;
export type ModuleRunContext = Pick<CallContext, "tenant" | "config" | "redactor">;

export interface ModuleRun {
  readonly plugins: readonly VcpPlugin[];
  readonly ask: OnceQuestion["ask"];
  /** Of one module, where its manifest allows more. */
  readonly longestMs: number;
  /** Of all together. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface ModuleAnswer {
  readonly stages: readonly Stage[];
  readonly told: readonly Told[];
  /** Undefined: the process ended before it was done. */
  readonly done: { readonly messages?: readonly JsonValue[]; readonly result?: JsonValue } | undefined;
  /** At work when the process ended. */
  readonly at: string | undefined;
  readonly exit: PluginExit;
}

/** Megabytes of objects that one module may keep. */
const moduleMemoryMb = 512;
/** The host's own part beside messages or a result. */
const answerOverheadBytes = 262_144;
const hostFile = "module-host.cjs";

/** @throws GatewayError not sent: no runner here, unreadable values, missing files; else what the runner says */
export async function runOnce(
  deps: ModuleRunDeps,
  context: ModuleRunContext,
  { plugins, ask, longestMs, timeoutMs, signal }: ModuleRun,
): Promise<ModuleAnswer> {
  const { tenantPlugins: runner } = deps;
  if (runner === undefined) throw noRunner(plugins);
  // Read where modules run, which most gateways never do.
  const [{ hostProgram }, ...carried] = await Promise.all([
    import("./host-program.ts"),
    ...plugins.map((plugin) => carry(deps, context, plugin, longestMs)),
  ]);
  const word = randomBytes(16).toString("hex");
  const maxBytes = context.config.settings.result_max_bytes;
  const question: OnceQuestion = { word, plugins: carried, maxBytes, ask };
  const exit = await runner.run({
    tenant: context.tenant,
    command: ["node", hostFile],
    environment: {},
    stdin: JSON.stringify(question),
    timeoutMs,
    maxOutputBytes: maxBytes + answerOverheadBytes,
    files: [{ path: hostFile, body: Buffer.from(hostProgram, "utf8") }],
    ...(signal === undefined ? {} : { signal }),
  });
  return { ...collect(readOnceAnswers(exit.stdout, word)), exit };
}

function collect(answers: ReturnType<typeof readOnceAnswers>): Omit<ModuleAnswer, "exit"> {
  const stages: Stage[] = [];
  const told: Told[] = [];
  let at: string | undefined;
  let done: ModuleAnswer["done"];
  for (const answer of answers) {
    switch (answer.kind) {
      case "turn":
        at = answer.plugin;
        break;
      case "told":
        told.push(answer.told);
        break;
      case "stage":
        stages.push(answer.stage);
        at = undefined;
        break;
      case "done":
        done = answer;
        break;
      default:
        answer satisfies never;
    }
  }
  return { stages, told, done, at };
}

async function carry(
  deps: ModuleRunDeps,
  context: ModuleRunContext,
  plugin: VcpPlugin,
  longestMs: number,
): Promise<CarriedModule> {
  const [configuration, files] = await Promise.all([
    openConfiguration(deps, context, plugin),
    foldersOf(deps).get(context.tenant, plugin.files),
  ]);
  return {
    ...specOf(deps, plugin, configuration),
    files: [...files, ...configuration.envFiles].map(({ path, body }) => ({
      path,
      base64: Buffer.from(body).toString("base64"),
    })),
    timeoutMs: Math.min(plugin.manifest.timeoutMs, longestMs),
    memoryMb: moduleMemoryMb,
    mayStayOpen: plugin.manifest.source["stateless"] === true,
  };
}

/** What a module is told of itself, in the box and on nodes alike. */
export function specOf(
  { publicUrl }: Pick<ModuleRunDeps, "publicUrl">,
  { name, manifest }: VcpPlugin,
  { values, environment }: Pick<Awaited<ReturnType<typeof openConfiguration>>, "values" | "environment">,
): Pick<CarriedModule, "name" | "script" | "config" | "environment" | "hasApiRoutes"> {
  const port = URL.parse(publicUrl)?.port ?? "";
  const config: JsonObject = { ...values, ...(port === "" ? {} : { PORT: Number(port) }) };
  return {
    name,
    script: manifest.entryPoint.script ?? "",
    config,
    environment: { ...environment, ...(port === "" ? {} : { SERVER_PORT: port }) },
    hasApiRoutes: manifest.hasApiRoutes,
  };
}

function noRunner(plugins: readonly VcpPlugin[]): GatewayError {
  const names = plugins.map(({ name }) => `'${name}'`).join(", ");
  return withDelivery(
    new GatewayError("tool_unreachable", `${names} cannot be run here: no plugin runner is configured.`),
    "not_sent",
  );
}
