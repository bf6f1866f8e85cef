/** Messages as nodes bring them, and as mappings see them. What is in them is data from outside. */
import { createHash } from "node:crypto";
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { schemaProblem } from "../errors/schema-problems.ts";
import { parseWatchingDigits, type JsonObject, type JsonValue } from "../json.ts";
import type { MessageSubscription } from "./subscription.ts";

/** All of them; more are left out by the node. */
export const mostHeaders = 64;

export const broughtMessageSchema = z.strictObject({
  /** Of this taking of it: names it where nothing else does. */
  delivery: z.string().regex(/^[\w-]{16,64}$/),
  /** The producer's or the broker's. */
  message_id: z.string().min(1).max(1_024).optional(),
  /** Base64; absent: it was uploaded, or is too large. */
  body: z.base64().optional(),
  uploaded: z.boolean().default(false),
  bytes: z.int().min(0),
  content_type: z.string().max(256).optional(),
  headers: z.record(z.string().max(256), z.string().max(8_192)).default({}),
  key: z.string().max(4_096).optional(),
  place: z.record(z.string().max(64), z.union([z.string().max(256), z.number()])).default({}),
  /** Epoch milliseconds. */
  at: z.number().optional(),
  redelivered: z.boolean().default(false),
  /** Messages of its key become calls one after the other. */
  in_order: z.boolean().default(false),
  /** Why it is not as it was sent; no call can be made of it. */
  unreadable: z.string().max(1_024).optional(),
});
export type BroughtMessage = z.output<typeof broughtMessageSchema>;

const { shape } = broughtMessageSchema;

/** The same fields, whatever is in them: of those that come from the producer the node answers for none. */
export const broughtFieldsSchema = z.strictObject({
  ...Object.fromEntries(Object.keys(shape).map((name) => [name, z.unknown().optional()])),
  delivery: shape.delivery,
});

export interface ReadMessage {
  readonly message: BroughtMessage;
  /** What is wrong with it, where no call can be made of it whatever is done elsewhere. */
  readonly fault?: GatewayError | undefined;
}

/** As much of it as fits, which is at least what it is known by. */
export function readBrought(fields: z.output<typeof broughtFieldsSchema>): ReadMessage {
  const read = broughtMessageSchema.safeParse(fields);
  if (read.success) {
    const { unreadable } = read.data;
    const fault = unreadable === undefined ? undefined : new GatewayError("invalid_arguments", unreadable);
    return { message: read.data, fault };
  }
  const { path, says } = schemaProblem(read.error);
  const fault = new GatewayError("invalid_arguments", `The message cannot be read: its '${path.join(".")}' ${says}.`);
  const given = new Map(Object.entries(fields));
  const fitting = Object.entries(shape).filter(([name, field]) => field.safeParse(given.get(name)).success);
  const told = Object.fromEntries(fitting.map(([name]) => [name, given.get(name)]));
  return { message: broughtMessageSchema.parse({ bytes: 0, ...told }), fault };
}

/** Equal for the same message, however often and by whomever it is brought. */
export function keyOf({ message_id: id, delivery }: BroughtMessage): string {
  return hashOf(id === undefined ? ["delivery", delivery] : ["message", id]);
}

/** Of messages that are to become calls in order. */
export function laneOf(key: string): string {
  return hashOf(["lane", key]);
}

function hashOf(parts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(parts), "utf8").digest("base64url");
}

/**
 * What pointers of a mapping point into.
 * @throws GatewayError `invalid_json`, `invalid_arguments` where the body is not what `options.format` says
 */
export function documentOf(
  { topic, options }: Pick<MessageSubscription, "topic" | "options">,
  message: BroughtMessage,
  body: Uint8Array,
): JsonObject {
  const { message_id: id, headers, key, place, at, content_type: contentType } = message;
  return {
    body: readBody(options.format, body),
    id: id ?? null,
    topic,
    headers,
    place,
    ...(key === undefined ? {} : { key }),
    ...(contentType === undefined ? {} : { content_type: contentType }),
    ...(at === undefined || !isTime(at) ? {} : { published_at: new Date(at).toISOString() }),
  };
}

function readBody(format: MessageSubscription["options"]["format"], body: Uint8Array): JsonValue {
  if (format === "base64") return Buffer.from(body).toString("base64");
  const text = readText(body);
  if (format === "text") return text;
  // A record of Kafka without a value says that its key is gone.
  if (text.trim() === "") return null;
  try {
    return parseWatchingDigits(text, (digits) => digits);
  } catch {
    throw new GatewayError(
      "invalid_json",
      "The message is not JSON; if it is not meant to be, say so with 'options.format'.",
      { param: "options.format" },
    );
  }
}

function readText(body: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    throw new GatewayError(
      "invalid_arguments",
      "The message is not UTF-8 text; say 'base64' as 'options.format' to have its bytes.",
      { param: "options.format" },
    );
  }
}

function isTime(at: number): boolean {
  return Math.abs(at) <= 8.64e15;
}
