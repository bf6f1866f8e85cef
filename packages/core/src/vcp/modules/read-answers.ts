/** Answers of the program that runs modules (wire.ts), out of everything that its process has written. */
import * as z from "zod";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import { answerMark, type OnceAnswer } from "./wire.ts";

export const faultSchema = z.object({
  fault: z.enum([
    "absent",
    "load",
    "initialize",
    "open",
    "timeout",
    "stream",
    "memory",
    "ended",
    "size",
    "result",
    "threw",
  ]),
  message: z.string(),
});

export const toldSchema = z.object({
  plugin: z.string(),
  to: z.enum(["VCPLog", "VCPInfo"]),
  data: z.json(),
});

const stageSchema = z.object({
  plugin: z.string(),
  durationMs: z.number(),
  failed: faultSchema.exactOptional(),
  open: z.array(z.string()).exactOptional(),
});

const onceAnswerSchema: z.ZodType<OnceAnswer> = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("turn"), plugin: z.string() }),
  z.object({ kind: z.literal("told"), told: toldSchema }),
  z.object({ kind: z.literal("stage"), stage: stageSchema }),
  z.object({
    kind: z.literal("done"),
    messages: z.array(z.json()).exactOptional(),
    result: z.json().exactOptional(),
  }),
]);

/** Lines that are none of ours are what modules print. */
export function readOnceAnswers(stdout: string, word: string): readonly OnceAnswer[] {
  return linesOf(stdout, word).flatMap((line) => {
    const parsed = onceAnswerSchema.safeParse(line);
    return parsed.success ? [parsed.data] : [];
  });
}

/** The JSON of each answer, in order. */
export function linesOf(text: string, word: string): readonly JsonValue[] {
  const begin = `${answerMark}${word} `;
  return text.split("\n").flatMap((line) => {
    const json = line.startsWith(begin) ? parseJson(line.slice(begin.length)) : undefined;
    return json === undefined ? [] : [json];
  });
}

/** What can be a conversation: objects that say whose words they are. */
export function toMessages(values: readonly JsonValue[]): readonly JsonObject[] | undefined {
  const messages = values.filter(isJsonObject).filter(({ role }) => typeof role === "string");
  return messages.length === values.length ? messages : undefined;
}
