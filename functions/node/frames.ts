/** What a gateway says to a node, as far as a node needs it; what else comes along is left alone. */
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import * as z from "zod";
import { version } from "../version.ts";

const errorSchema = z.looseObject({
  type: z.literal("error"),
  error: z.looseObject({
    code: z.string(),
    message: z.string(),
    retryable: z.boolean().nullish(),
    retry_after_ms: z.number().nullish(),
    tool_name: z.string().nullish(),
    param: z.string().nullish(),
  }),
});

const registeredSchema = z.looseObject({
  beat_ms: z.number().min(1),
  hidden: z.array(z.looseObject({ name: z.string(), by: z.string() })),
});

export const inputSchema = z.looseObject({
  arguments: z.custom<JsonObject>(isJsonObject),
  trace_id: z.string().optional(),
});
export type NodeInput = z.infer<typeof inputSchema>;
const acceptedSchema = z.looseObject({
  type: z.enum(["node.accepted", "node.withdrawn"]),
  input: inputSchema.optional(),
  input_url: z.string().optional(),
});

const beatenSchema = z.looseObject({
  known: z.array(z.string()),
  cancelled: z.array(z.string()),
  /** Services whose held processes are to end. */
  stop: z.array(z.string()).default([]),
});

const uploadSchema = z.looseObject({ url: z.string(), headers: z.record(z.string(), z.string()) });

const heldSchema = z.looseObject({
  subscriptions: z.array(z.looseObject({ id: z.string(), name: z.string(), fingerprint: z.string() })),
  beat_ms: z.number().min(1),
  lease_ms: z.number().min(1),
});

const modulesHeldSchema = z.looseObject({
  modules: z.array(z.looseObject({ plugin: z.string(), fingerprint: z.string() })),
  lease_ms: z.number().min(1),
});

const moduleOpenedSchema = z.looseObject({
  fingerprint: z.string(),
  spec: z.object({
    name: z.string(),
    script: z.string(),
    config: z.custom<JsonObject>(isJsonObject),
    environment: z.record(z.string(), z.string()),
    hasApiRoutes: z.boolean(),
  }),
  env_files: z.array(z.object({ path: z.enum(["config.env", ".env"]), base64: z.string() })),
  files_url: z.string().nullable(),
  files_hash: z.string().regex(/^[a-z0-9]{4,64}$/),
  max_bytes: z.number().min(1),
});

const takenSchema = z.discriminatedUnion("outcome", [
  z.looseObject({ outcome: z.enum(["accepted", "duplicate"]), call_id: z.string() }),
  z.looseObject({ outcome: z.literal("dead"), code: z.string(), message: z.string() }),
  z.looseObject({
    outcome: z.literal("refused"),
    code: z.string(),
    message: z.string(),
    retry_after_ms: z.number().min(0),
  }),
  z.looseObject({
    outcome: z.literal("later"),
    code: z.string().nullable(),
    message: z.string(),
    retry_after_ms: z.number().min(0),
  }),
  z.looseObject({ outcome: z.literal("withdrawn") }),
]);

const eventSchema = z.discriminatedUnion("type", [
  z.looseObject({
    type: z.literal("node.call"),
    data: z.looseObject({ run: z.string(), call_id: z.string(), tool: z.string() }),
  }),
  z.looseObject({ type: z.literal("node.cancel"), data: z.looseObject({ run: z.string() }) }),
  z.looseObject({ type: z.literal("node.look") }),
  z.looseObject({ type: z.literal("node.replaced") }),
  z.looseObject({ type: z.literal("node.removed") }),
  z.looseObject({ type: z.literal("subscription.changed") }),
]);
export type NodeEvent = z.infer<typeof eventSchema>;

/** What the gateway says is wrong with a message. */
export class AnsweredError extends Error {
  override readonly name = "AnsweredError";
  readonly code: string;
  /** The same message may do in a moment. */
  readonly isPassing: boolean;
  /** Before this it would not. */
  readonly retryAfterMs: number;
  /** The tool that it is about. */
  readonly tool: string | undefined;

  constructor(
    code: string,
    message: string,
    { isPassing, retryAfterMs = 0, tool }: { isPassing: boolean; retryAfterMs?: number; tool?: string | undefined },
  ) {
    super(message);
    this.code = code;
    this.isPassing = isPassing;
    this.retryAfterMs = retryAfterMs;
    this.tool = tool;
  }
}

/** Of what a program of VCP has said, which is passed on as it is. */
const framesParam = "frame";
/** A node says nothing that a gateway of its own release would not read. */
const gatewayIsOlder = `The gateway does not know what this node's program (version ${version}) says: it is of another release, most likely an older one. Upgrade the gateway, or run the node of the gateway's release.`;
const gatewayIsNewer = `The gateway gave an answer that this node's program (version ${version}) does not understand: it is of another release, most likely a newer one. Upgrade the node to the gateway's release.`;

/** Of a call that this node declines. */
export const nodeIsOlder = `this node's program (version ${version}) does not understand what the gateway wants of it, which is of another release; upgrade the node to the gateway's`;

/** @throws AnsweredError where the answer is an error, or none that this node understands */
function reader<T>(schema: z.ZodType<T>): (answer: JsonObject) => T {
  return (answer) => {
    const failed = errorSchema.safeParse(answer);
    if (failed.success) {
      const { code, message, retryable, retry_after_ms: retryAfterMs, tool_name: tool, param } = failed.data.error;
      const isUnknown = code === "invalid_request" && param !== framesParam;
      throw new AnsweredError(code, isUnknown ? `${message} ${gatewayIsOlder}` : message, {
        isPassing: retryable === true,
        retryAfterMs: retryAfterMs ?? 0,
        tool: tool ?? undefined,
      });
    }
    const parsed = schema.safeParse(answer);
    if (parsed.success) return parsed.data;
    throw new AnsweredError("invalid_response", gatewayIsNewer, { isPassing: false });
  };
}

export const readRegistered: (answer: JsonObject) => z.infer<typeof registeredSchema> = reader(registeredSchema);
export const readAccepted: (answer: JsonObject) => z.infer<typeof acceptedSchema> = reader(acceptedSchema);
export const readBeaten: (answer: JsonObject) => z.infer<typeof beatenSchema> = reader(beatenSchema);
export const readUpload: (answer: JsonObject) => z.infer<typeof uploadSchema> = reader(uploadSchema);
export const readHeld: (answer: JsonObject) => z.infer<typeof heldSchema> = reader(heldSchema);
export const readModulesHeld: (answer: JsonObject) => z.infer<typeof modulesHeldSchema> = reader(modulesHeldSchema);
export const readModuleOpened: (answer: JsonObject) => z.infer<typeof moduleOpenedSchema> = reader(moduleOpenedSchema);
export const readTaken: (answer: JsonObject) => z.infer<typeof takenSchema> = reader(takenSchema);
/** Read in full by whoever wrote it. */
export const readOpened: (answer: JsonObject) => JsonObject = reader(z.custom<JsonObject>(isJsonObject));
/** An answer of which only matters that it is no error. */
export const readDone: (answer: JsonObject) => unknown = reader(z.unknown());

/** `undefined` for what this node does not know: newer gateways may say more. */
export function readEvent(frame: JsonObject): NodeEvent | undefined {
  const parsed = eventSchema.safeParse(frame);
  return parsed.success ? parsed.data : undefined;
}
