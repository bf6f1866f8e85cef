/**
 * Nodes: processes that dial in, serve one tenant and hold what must stay alive (design "Short work in
 * functions, resident work on nodes"). What a node offers is data from outside, checked here.
 */
import { createHash } from "node:crypto";
import * as z from "zod";
import { once } from "../once.ts";
import { canonicalJson, isJsonObject, type JsonObject } from "../json.ts";

const mostTools = 64;
const longestParameters = 16_384;
/** Of all tools together: API Gateway takes messages of 128 KB. */
const longestOffer = 122_880;
/** A day: what takes longer is not one call. */
export const longestTimeoutMs = 86_400_000;

export const nodeNameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][\w.-]{0,63}$/,
    "must have 1 to 64 letters, digits, '_', '-' or '.', and begin with one of the first two",
  );

/** Bytes of a file that a node gives. */
export const longestFile = 7_340_032;

/** Marks a result as the answer of an MCP server that the node holds (mcp/node-messages.ts). */
export const mcpAnswerType = "application/vnd.toolyard.mcp-answer+json";
/** Marks a result as what a module of a plugin gave that the node holds (vcp/modules). */
export const moduleAnswerType = "application/vnd.toolyard.module-answer+json";

const longestCommands = 49_152;

const makeVcpToolSchema = () =>
  z.strictObject({
    /** Exactly what a TOOL_REQUEST says. */
    name: z.string().min(1).max(64),
    display_name: z.string().min(1).max(200),
    /** Answers at once, and says later what came of it. */
    asynchronous: z.boolean().exactOptional(),
    /** Clients are told what it came to, and in which form (vcp/push). */
    push: z
      .strictObject({
        usePluginResultAsMessage: z.boolean(),
        messageType: z.string().max(200).exactOptional(),
        targetClientType: z.string().max(200).nullable(),
      })
      .exactOptional(),
    commands: z
      .array(
        z.strictObject({
          command: z.string().max(200).exactOptional(),
          description: z.string(),
          example: z.string().exactOptional(),
        }),
      )
      .max(128)
      .refine(
        (commands) => Buffer.byteLength(JSON.stringify(commands)) <= longestCommands,
        `must have at most ${longestCommands} bytes`,
      ),
  });

/** Marks a result as what a plugin of a VCP node has said (vcp/nodes/node-answer.ts). */
export const vcpAnswerType = "application/vnd.toolyard.vcp-answer+json";

/** A tool as a node offers it: what a model may know, never how it is run. */
export const nodeToolSchema = once(() =>
  z.strictObject({
    name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "must have 1 to 64 letters, digits, '_' or '-'"),
    description: z.string().min(1).max(4_096),
    parameters: z
      .custom<JsonObject>(isJsonObject, "must be a JSON Schema of an object")
      .refine((schema) => schema["type"] === undefined || schema["type"] === "object", "must be of type 'object'")
      .refine(
        (schema) => Buffer.byteLength(JSON.stringify(schema)) <= longestParameters,
        `must have at most ${longestParameters} bytes`,
      ),
    effect: z.enum(["read", "write"]),
    /** Waits for a person's approval before it runs. */
    sensitive: z.boolean().default(false),
    timeout_ms: z.int().min(1).max(longestTimeoutMs),
    concurrency: z.int().min(1).max(1_000),
    /**
     * What is no tool and is not called by itself. `mcp`: a program of an MCP server, which services of `mcp://` have
     * held. `modules`: holds modules of VCP plugins (vcp/modules). `files`: gives files of its `directories` to other
     * tools (vcp/files).
     */
    kind: z.enum(["mcp", "modules", "files"]).exactOptional(),
    directories: z.array(z.string().min(1).max(1_024)).max(32).exactOptional(),
    /** A plugin of a VCP node: how VCP's clients and prompts know it. */
    vcp: makeVcpToolSchema().exactOptional(),
    /** Of such a program: variables that services may set. */
    variables: z
      .array(z.string().regex(/^[A-Za-z_]\w{0,127}$/))
      .max(64)
      .exactOptional(),
  }),
);
export type NodeTool = z.infer<ReturnType<typeof nodeToolSchema>>;
export type VcpCommand = z.infer<ReturnType<typeof makeVcpToolSchema>>["commands"][number];

export const nodeToolsSchema = once(() =>
  z
    .array(nodeToolSchema())
    .max(mostTools)
    .superRefine((tools, context) => {
      const seen = new Set<string>();
      for (const [at, { name }] of tools.entries()) {
        if (seen.has(name))
          context.addIssue({ code: "custom", path: [at, "name"], message: `'${name}' is offered twice` });
        seen.add(name);
      }
    }),
);

/** The same where a node offers them: in one message. */
export const offeredToolsSchema = once(() =>
  nodeToolsSchema().superRefine((tools, context) => {
    const bytes = Buffer.byteLength(JSON.stringify(tools));
    if (bytes > longestOffer)
      context.addIssue({
        code: "custom",
        message: `have ${bytes} bytes together, more than the ${longestOffer} that a node may offer`,
      });
  }),
);

/** As kept with the tenant's configuration. */
export interface RegisteredNode {
  readonly name: string;
  readonly tools: readonly NodeTool[];
  /** Of a VCP node: the id that it was given when it connected. */
  readonly serverId?: string;
}

/** A node as it stands now. */
export interface NodeRecord extends RegisteredNode {
  readonly id: string;
  /** Of the program. */
  readonly version: string;
  /** One run of the program: a node that comes back is told from another one of its name by it. */
  readonly instance: string;
  readonly callerId: string;
  readonly connectionId: string;
  readonly connected: boolean;
  readonly since: number;
  readonly seenAt: number;
  readonly underWay: number;
}

export interface NodeRegistration extends RegisteredNode {
  /** Of its row, where there is none of the name yet. */
  readonly id: string;
  readonly version: string;
  readonly instance: string;
  readonly callerId: string;
  readonly connectionId: string;
}

/** One sending of a call to a node. */
export interface NodeRun {
  readonly id: string;
  readonly callId: string;
  /** Of the call's row, for what ends it. */
  readonly attempt: number;
  readonly node: string;
  readonly instance: string;
  readonly tool: string;
  /**
   * `offered`: nothing has been done yet. `accepted`: the node was allowed to begin. `withdrawn`: it was not, and
   * never will be. `ended`: there is a result.
   */
  readonly state: "offered" | "accepted" | "withdrawn" | "ended";
  /** Nobody waits: the call's row ends with the result, whoever receives it. */
  readonly handedOver: boolean;
  readonly cancelled: boolean;
  readonly leaseUntil: number;
  /** Of the database. */
  readonly now: number;
  /** Its node is connected. */
  readonly connected: boolean;
  /** Arguments, sealed; empty: they are a blob; null: the run is over. */
  readonly input: string | null;
  readonly result: string | null;
}

export interface NewNodeRun {
  readonly id: string;
  readonly callId: string;
  readonly attempt: number;
  readonly tool: string;
  /** Of the tool's definition: a node that offers another one by now does not get the call. */
  readonly toolHash: string;
  /** The node that it must be; null: whichever has room. */
  readonly node: string | null;
  readonly handedOver: boolean;
  /** The arguments, sealed; empty: they are a blob. */
  readonly input: string;
  readonly leaseMs: number;
}

/** VCP nodes are instances whose names begin with the id that they were told. */
export function serverIdOf(instance: string): string | undefined {
  return /^(dist-[0-9a-z]+-[0-9A-Za-z]+)-/.exec(instance)?.[1];
}

/** SHA-256 of what a tool is to who calls it; how many at once is the node's own matter. */
export function hashNodeTool({ concurrency: _concurrency, ...tool }: NodeTool): string {
  return createHash("sha256").update(canonicalJson(tool), "utf8").digest("hex");
}
