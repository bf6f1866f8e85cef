/**
 * What the gateway and a node say to each other about modules that the node holds: the arguments and the result of a
 * run (nodes/run.ts). Which modules it is to hold, and with which files and values, the node asks by itself
 * (messages.ts); a run names the module as the gateway knows it.
 */
import * as z from "zod";
import { isJsonObject, parseJson, type JsonObject } from "../../json.ts";
import { faultSchema } from "./read-answers.ts";
import type { Fault } from "./wire.ts";

/** The program on a node that stands for all modules; it is neither listed nor called by itself. */
export const moduleProgram = "vcp_modules";

const jsonObject = z.custom<JsonObject>(isJsonObject, "must be a JSON object");
const header = z.tuple([z.string(), z.string()]).readonly();

const askSchema = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("messages"), messages: z.array(z.json()), extensions: z.json().exactOptional() }),
  z.strictObject({
    kind: z.literal("tool"),
    arguments: jsonObject,
    context: z.strictObject({ requestIp: z.string().nullable(), sourceNode: z.string().nullable() }),
  }),
  z.strictObject({
    kind: z.literal("http"),
    request: z.strictObject({
      method: z.string(),
      path: z.string(),
      query: z.string(),
      headers: z.array(header),
      base64: z.string(),
      ip: z.string().nullable(),
    }),
  }),
]);
export type ModuleAsk = z.infer<typeof askSchema>;

export const moduleRunSchema = z.strictObject({
  plugin: z.string(),
  /** Of everything that the module is made of: with another one it is loaded anew. */
  fingerprint: z.string(),
  ask: askSchema,
  timeout_ms: z.int().min(1),
});
export type ModuleRunWire = z.infer<typeof moduleRunSchema>;

const answerSchema = z.union([z.object({ result: z.json() }), z.object({ failed: faultSchema })]);
export type ModuleRunAnswer = { readonly result: z.infer<ReturnType<typeof z.json>> } | { readonly failed: Fault };

/** Undefined for what is none. */
export function readModuleAnswer(text: string): ModuleRunAnswer | undefined {
  const parsed = answerSchema.safeParse(parseJson(text));
  return parsed.success ? parsed.data : undefined;
}

export const httpAnswerSchema = z.object({
  status: z.int().min(100).max(599),
  headers: z.array(header),
  base64: z.string(),
});
