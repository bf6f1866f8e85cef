/**
 * A native tool: TypeScript with a zod schema as the only truth of its arguments (NATIVE-1). The
 * JSON Schema for models, listings and the mirror in `sys_ai_plugin` is made from it, once.
 */
import { createHash } from "node:crypto";
import * as z from "zod";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { schemaProblems } from "../../errors/schema-problems.ts";
import { canonicalJson, isJsonObject, parseJson, type JsonObject } from "../../json.ts";
import { once } from "../../once.ts";
import type { Workspace } from "../../workspace/workspace.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tool-call.ts";
import { escapePointer } from "../json-schema/document.ts";
import type { Effect, Repeat } from "../effect.ts";
import type { Tool } from "../tool.ts";

/** One call of a native tool, with what NATIVE-2 lets it see: tenant, session, trace id. */
export interface NativeRun {
  readonly deps: CoreDeps;
  readonly workspace: Workspace;
  readonly call: ToolCall;
  readonly context: InvocationContext;
}

export interface NativeToolSpec<Input extends z.ZodType<object>> {
  readonly name: string;
  /** Stands in `execution_config.class_name` of the mirrored row. */
  readonly className: string;
  readonly title: string;
  readonly description: string;
  /** Makes a strict object, when it is first needed. */
  readonly input: () => Input;
  /** The worst case; `effectOf` may soften it for one call. */
  readonly effect: Effect;
  readonly effectOf?: (input: z.output<Input>) => Effect;
  readonly repeat: Repeat;
  readonly outputTrust: Tool["outputTrust"];
  readonly outward?: boolean;
  /** Works on the session's files, in call order with other writers. */
  readonly usesWorkspace?: boolean;
  /** Models are told of it in chats without a session, too. */
  readonly needsNoSession?: boolean;
  /** Milliseconds that a call may take where that is more than the tenant's tools usually may. */
  readonly timeoutMs?: number;
  readonly invoke: (input: z.output<Input>, run: NativeRun) => Promise<ToolReply>;
}

/** The tool with its schema made plain, as the adapter and the mirror use it. */
export interface NativeTool {
  readonly name: string;
  readonly className: string;
  readonly title: string;
  readonly description: string;
  readonly parameters: JsonObject;
  readonly effect: Effect;
  readonly effectOf: (args: JsonObject) => Effect;
  readonly repeat: Repeat;
  readonly outputTrust: Tool["outputTrust"];
  readonly outward: boolean;
  readonly usesWorkspace: boolean;
  readonly needsNoSession: boolean;
  readonly timeoutMs: number | undefined;
  /** SHA-256 of what a caller and a model can see of it. */
  readonly hash: string;
  readonly invoke: (args: JsonObject, run: NativeRun) => Promise<ToolReply>;
}

export function defineNativeTool<Input extends z.ZodType<object>>(spec: NativeToolSpec<Input>): NativeTool {
  const { name, className, title, description, effect, repeat, outputTrust } = spec;
  // Made when first asked for: a function that is started for one request mostly needs none of it.
  const input = once(spec.input);
  let parameters: JsonObject | undefined;
  let hash: string | undefined;
  return {
    name,
    className,
    title,
    description,
    get parameters() {
      parameters ??= toParameters(input());
      return parameters;
    },
    effect,
    effectOf: (args) => {
      const parsed = input().safeParse(args);
      return parsed.success && spec.effectOf !== undefined ? spec.effectOf(parsed.data) : effect;
    },
    repeat,
    outputTrust,
    outward: spec.outward ?? false,
    usesWorkspace: spec.usesWorkspace ?? false,
    needsNoSession: spec.needsNoSession ?? false,
    timeoutMs: spec.timeoutMs,
    get hash() {
      hash ??= createHash("sha256")
        .update(canonicalJson({ name, className, title, description, parameters: this.parameters, effect, repeat }))
        .digest("hex");
      return hash;
    },
    invoke: async (args, run) => spec.invoke(readInput(input(), args), run),
  };
}

/** JSON text for the model. */
export function jsonReply(value: JsonObject): ToolReply {
  return { mediaType: "application/json", body: JSON.stringify(value) };
}

/** Arguments that the schema could not express, before anything has happened. */
export function invalidInput(param: string, message: string, cause?: unknown): GatewayError {
  return withDelivery(new GatewayError("invalid_arguments", message, { param, cause }), "not_sent");
}

/**
 * The session of a call.
 * @throws GatewayError `invalid_request` where the call is made in none
 */
export function sessionOf({ context, call }: Pick<NativeRun, "call" | "context">): string {
  if (context.sessionId !== undefined) return context.sessionId;
  throw withDelivery(
    new GatewayError(
      "invalid_request",
      `'${call.tool.name}' works on the files of a session; send 'session_id' with the request.`,
      { param: "session_id", toolName: call.tool.name },
    ),
    "not_sent",
  );
}

/** A refusal by the workspace is an answer: nothing of the call is left in doubt. */
export async function answered<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw error instanceof GatewayError && error.spec.http < 500 ? withDelivery(error, "answered") : error;
  }
}

/** The JSON Schema of a tool's arguments. */
export function toParameters(input: z.ZodType): JsonObject {
  const schema = parseJson(JSON.stringify(z.toJSONSchema(input, { io: "input" })));
  if (!isJsonObject(schema) || schema["type"] !== "object") {
    throw new GatewayError("internal_error", "The arguments of a tool must be a zod object.");
  }
  const { $schema: _dialect, ...parameters } = schema;
  return parameters;
}

/** @throws GatewayError `invalid_arguments`, `not_sent` */
export function readInput<Input extends z.ZodType>(input: Input, args: JsonObject): z.output<Input> {
  const parsed = input.safeParse(args);
  if (parsed.success) return parsed.data;
  const errors = schemaProblems(parsed.error)
    .slice(0, 10)
    .map(({ path, says }) => ({
      pointer: path.map((key) => `/${escapePointer(String(key))}`).join(""),
      message: says,
    }));
  const list = errors
    .map(({ pointer, message }) => `'${pointer === "" ? "arguments" : pointer}' ${message}`)
    .join("; ");
  throw withDelivery(
    new GatewayError("invalid_arguments", `The arguments do not fit: ${list}`, {
      param: "arguments",
      extra: { errors },
    }),
    "not_sent",
  );
}
