/** What an adapter asks of an error of the SDK: which one it is, and how often the request was sent. */
import { setTimeout as timer } from "node:timers/promises";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import * as z from "zod";

const awsErrorSchema = z.looseObject({
  name: z.string(),
  $metadata: z.looseObject({ httpStatusCode: z.number().optional(), attempts: z.number().optional() }).optional(),
});

export interface AwsError {
  /** As the service names it (`NoSuchKey`), or the system (`TimeoutError`). */
  readonly name: string;
  readonly status: number | undefined;
  readonly attempts: number;
}

export function readAwsError(cause: unknown): AwsError {
  const parsed = awsErrorSchema.safeParse(cause instanceof Error ? Object.assign({ name: cause.name }, cause) : cause);
  if (!parsed.success) return { name: "unknown reason", status: undefined, attempts: 1 };
  const { name, $metadata } = parsed.data;
  return { name, status: $metadata?.httpStatusCode, attempts: $metadata?.attempts ?? 1 };
}

/** The SDK's complaint about settings it could not find, in the words of whoever has to set them. */
const missingSettings: Readonly<Record<string, string>> = {
  CredentialsProviderError:
    "no credentials were found; give the process a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
  "Region is missing": "AWS_REGION must be set",
};

/** What has to be set before anything can be asked; undefined: the service, or the way to it, failed. */
export function missingSetting(cause: unknown): string | undefined {
  const text = cause instanceof Error ? cause.message : "";
  return missingSettings[readAwsError(cause).name] ?? missingSettings[text];
}

/** What errors of the system are called, all of them: which one it is says their code. */
const plainNames: readonly string[] = ["Error", "AggregateError", "TypeError"];

/** Why it failed, safe to show: the error's name or code and never its text, which quotes what was sent. */
export function reasonOf(cause: unknown): string {
  const missing = missingSetting(cause);
  if (missing !== undefined) return missing;
  const { name } = readAwsError(cause);
  if (!plainNames.includes(name)) return name;
  return cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : name;
}

export function unavailable(
  code: "blobs_unavailable" | "queue_unavailable" | "master_key_unavailable" | "push_unavailable",
  message: string,
  cause: unknown,
): GatewayError {
  return cause instanceof GatewayError ? cause : new GatewayError(code, message, { cause });
}

const firstPauseMs = 25;
const longestPauseMs = 1_000;

/** Before the next attempt: longer each time, and never the same for two who collided. */
export async function pause(attempt: number): Promise<void> {
  const longest = Math.min(longestPauseMs, firstPauseMs * 2 ** attempt);
  await timer(longest * (0.5 + Math.random() / 2));
}
