/**
 * What the log may say about an error that nobody expected: its kind and where it came from, never its
 * message, since messages of parsers and drivers quote what they were given. Of a service that is the operator's
 * our own message is told: it says what is wrong with it, and which setting to look at.
 */
import type { ErrorCode } from "@toolyard/core/errors/catalog";
import { GatewayError } from "@toolyard/core/errors/gateway-error";

const operators: ReadonlySet<ErrorCode> = new Set([
  "database_unavailable",
  "blobs_unavailable",
  "queue_unavailable",
  "master_key_unavailable",
  "push_unavailable",
]);

export interface ThrownFields {
  readonly error: string;
  readonly at: string;
  readonly [field: string]: string;
}

const mostFrames = 12;

/** @param thrown the cause is described where there is one */
export function describeThrown(thrown: unknown): ThrownFields {
  const origin = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  const told = thrown instanceof GatewayError && operators.has(thrown.code) ? { reason: thrown.message } : {};
  if (!(origin instanceof Error)) return { error: typeof origin, at: "" };
  const code = "code" in origin && typeof origin.code === "string" ? ` ${origin.code}` : "";
  const frames = (origin.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  return {
    ...told,
    error: `${origin.name}${code}`,
    at: frames
      .slice(0, mostFrames)
      .map((line) => line.trim())
      .join("; "),
  };
}
