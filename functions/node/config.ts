/** `node.json`: what a node offers, and how it is run. Only the first half leaves the machine (docs/nodes.md). */
import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { schemaProblems } from "@toolyard/core/errors/schema-problems";
import { parseJson } from "@toolyard/core/json";
import {
  longestTimeoutMs,
  nodeNameSchema,
  nodeToolSchema,
  offeredToolsSchema,
  type NodeTool,
} from "@toolyard/core/nodes/node";
import { moduleProgram } from "@toolyard/core/vcp/modules/node-wire";
import * as z from "zod";
import { filesOffer } from "./files.ts";

const tool = nodeToolSchema();
const programSchema = tool.extend({
  /** Words that begin with `./` are paths beside the file. */
  command: z.tuple([z.string().min(1)], z.string(), {
    error: ({ code, input }) =>
      code === "invalid_type" && input !== undefined
        ? 'must be a list of words, like ["python3", "./measure.py"]'
        : undefined,
  }),
  /** Given to the program beside PATH, HOME, TMPDIR and LANG; never to the gateway. */
  environment: z.record(z.string().regex(/^[A-Za-z_]\w{0,99}$/), z.string()).default({}),
  effect: tool.shape.effect.default("write"),
  parameters: tool.shape.parameters.default({ type: "object", properties: {} }),
  timeout_ms: tool.shape.timeout_ms.default(60_000),
  concurrency: tool.shape.concurrency.default(1),
  resident: z.boolean().default(false),
  max_output_bytes: z.int().min(1).max(104_857_600).default(10_485_760),
});

const commandShape = programSchema.shape.command;

/** A server of the Model Context Protocol over stdio, held for services of `mcp://`. */
const mcpProgramSchema = z.strictObject({
  command: commandShape,
  environment: programSchema.shape.environment,
  /** Variables that services may set, beside those. */
  variables: tool.shape.variables.unwrap().default([]),
  /** Requests at once, over all services. */
  concurrency: tool.shape.concurrency.default(16),
  max_message_bytes: z.int().min(1).max(104_857_600).default(10_485_760),
});

/** Modules of the tenant's VCP plugins that need to stay loaded. */
const vcpModulesSchema = z.strictObject({
  /** Beside the file; absent: one that goes with the process, and what modules keep with it. */
  directory: z.string().min(1).exactOptional(),
  /** A `node_modules` beside the file with packages that modules may require. */
  packages: z.string().min(1).exactOptional(),
  /** Requests at once, over all modules. */
  concurrency: tool.shape.concurrency.default(16),
});

const configSchema = z
  .strictObject({
    name: nodeNameSchema,
    tools: z.array(programSchema).default([]),
    /** By the name that services give as their `command`. */
    mcp_servers: z.record(tool.shape.name, mcpProgramSchema).default({}),
    /** Directories of which tools may be given files by `file://`; those that begin with `./` are beside the file. */
    files: z.array(z.string().min(1).max(1_024)).max(32).default([]),
    /** Holds subscriptions of the tenant: takes messages from its brokers. */
    subscriptions: z.boolean().default(false),
    vcp_modules: vcpModulesSchema.exactOptional(),
  })
  .superRefine(({ tools, mcp_servers: servers, files, subscriptions, vcp_modules: modules }, check) => {
    const offered = tools.length + Object.keys(servers).length + files.length;
    if (offered === 0 && !subscriptions && modules === undefined) {
      const message =
        "has neither a tool nor 'mcp_servers' nor 'files' nor 'vcp_modules' nor 'subscriptions: true', so there is nothing to do";
      check.addIssue({ code: "custom", path: ["tools"], message });
    }
    const twice = tools.find(({ name }) => Object.hasOwn(servers, name));
    if (twice !== undefined)
      check.addIssue({ code: "custom", path: ["mcp_servers", twice.name], message: "is the name of a tool, too" });
  });

export type NodeProgram = z.infer<typeof programSchema>;
export type McpProgram = z.infer<typeof mcpProgramSchema> & { readonly name: string };

export interface NodeConfig {
  readonly name: string;
  /** Of the file; programs are found from here. */
  readonly directory: string;
  readonly programs: readonly NodeProgram[];
  readonly mcpServers: readonly McpProgram[];
  readonly holdsSubscriptions: boolean;
  /** Directories whose files are given. */
  readonly files: readonly string[];
  /** Undefined: it holds no modules. */
  readonly vcpModules: VcpModulesConfig | undefined;
}

export interface VcpModulesConfig {
  readonly directory: string | undefined;
  readonly packages: string | undefined;
  readonly concurrency: number;
}

/** Ends the start: says what is wrong with the file. */
export class NodeConfigError extends Error {
  override readonly name = "NodeConfigError";
}

/** @throws NodeConfigError */
export async function readNodeConfig(path: string): Promise<NodeConfig> {
  const text = await readFile(path, "utf8").catch(() => {
    throw new NodeConfigError(`--config: '${resolve(path)}' cannot be read.`);
  });
  const given = parseJson(text);
  if (given === undefined) {
    throw new NodeConfigError(`--config: '${path}' cannot be used: the file is no JSON; is it cut off?`);
  }
  const parsed = configSchema.safeParse(given);
  if (!parsed.success) {
    const problems = schemaProblems(parsed.error).map(
      ({ path, says }) => `  ${path.length === 0 ? "the file" : `'${path.join(".")}'`} ${says}`,
    );
    throw new NodeConfigError(`--config: '${path}' cannot be used:\n${problems.join("\n")}`);
  }
  const directory = dirname(resolve(path));
  const programs = parsed.data.tools.map((program) => ({ ...program, command: placed(program.command, directory) }));
  const mcpServers = Object.entries(parsed.data.mcp_servers).map(([name, server]) => ({
    ...server,
    name,
    command: placed(server.command, directory),
  }));
  const { name, subscriptions: holdsSubscriptions, vcp_modules: modules } = parsed.data;
  const files = parsed.data.files.map((each) => resolve(directory, each));
  const beside = (path: string | undefined): string | undefined =>
    path === undefined ? undefined : resolve(directory, path);
  const vcpModules = modules && {
    directory: beside(modules.directory),
    packages: beside(modules.packages),
    concurrency: modules.concurrency,
  };
  const config = { name, directory, programs, mcpServers, holdsSubscriptions, files, vcpModules };
  const offered = offeredToolsSchema().safeParse(offersOf(config));
  if (offered.success) return config;
  const problems = schemaProblems(offered.error).map(
    ({ path, says }) => `  ${["what it offers", ...path].join(".")}: ${says}`,
  );
  throw new NodeConfigError(`--config: '${path}' cannot be used:\n${problems.join("\n")}`);
}

/** All that the gateway is told. */
export function offersOf({ name, programs, mcpServers, files, vcpModules }: NodeConfig): readonly NodeTool[] {
  return [
    ...programs.map(toOffer),
    ...mcpServers.map(toMcpOffer),
    ...(files.length === 0 ? [] : [filesOffer(name, files)]),
    ...(vcpModules === undefined ? [] : [toModulesOffer(vcpModules)]),
  ];
}

function placed(command: NodeProgram["command"], directory: string): NodeProgram["command"] {
  const place = (word: string): string => (word.startsWith("./") ? resolve(directory, word) : word);
  const [program, ...rest] = command;
  return [place(program), ...rest.map(place)];
}

/** What the gateway is told of a program. */
export function toOffer(program: NodeProgram): NodeTool {
  const { name, description, parameters, effect, sensitive, timeout_ms, concurrency } = program;
  return { name, description, parameters, effect, sensitive, timeout_ms, concurrency };
}

/** The same of a server that is held: how it is run stays here. */
export function toMcpOffer({ name, variables, concurrency }: McpProgram): NodeTool {
  return {
    name,
    description: "An MCP server, for services of mcp:// that name this node.",
    parameters: { type: "object" },
    effect: "write",
    sensitive: false,
    // Services say how long a request may take.
    timeout_ms: longestTimeoutMs,
    concurrency,
    kind: "mcp",
    variables,
  };
}

/** Stands for all modules that the node holds. */
function toModulesOffer({ concurrency }: VcpModulesConfig): NodeTool {
  return {
    name: moduleProgram,
    description: "Holds modules of VCP plugins.",
    parameters: { type: "object" },
    effect: "write",
    sensitive: false,
    // Plugins say how long a question may take.
    timeout_ms: longestTimeoutMs,
    concurrency,
    kind: "modules",
  };
}
