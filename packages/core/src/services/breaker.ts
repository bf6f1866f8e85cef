/**
 * Circuit breakers of services (SVC-4): failures in a row open one, calls then fail at once or get the
 * configured fallback, and after a while one call is let through to see. An answer that says no is an
 * answer. Breakers are each instance's own, by declaration; nothing is shared.
 */
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonValue } from "../json.ts";
import type { Clock } from "../ports/clock.ts";
import { withDelivery, type ToolReply } from "../tools/adapter.ts";

export const breakerField = z
  .strictObject({
    failures: z.int().min(1).max(1_000).default(5).meta({ description: "Failures in a row that open it." }),
    open_ms: z.int().min(100).max(3_600_000).default(30_000).meta({ description: "How long it stays open." }),
    fallback: z.json().optional().meta({ description: "What calls get meanwhile, with `degraded: true`." }),
  })
  .meta({ description: "Spares a back end that fails." });
export type BreakerOptions = z.output<typeof breakerField>;

interface State {
  failures: number;
  /** Milliseconds of the clock; 0: closed. */
  openUntil: number;
  /** A call is on its way to see. */
  isProbing: boolean;
}

export interface Guarded {
  /** Tenant, service and version: a change starts anew. */
  readonly key: string;
  readonly options: BreakerOptions;
  /** For messages: `api://crm`. */
  readonly name: string;
  /** Was the attempt given up for its time limit, rather than cancelled? */
  readonly hasTimedOut: () => boolean;
}

/** Services of which something is remembered. */
const most = 10_000;

export class Breakers {
  readonly #states = new Map<string, State>();
  readonly #clock: Pick<Clock, "now">;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /** @throws GatewayError `circuit_open` with the time to wait, not sent, where there is no fallback */
  async guard(guarded: Guarded, send: () => Promise<ToolReply>): Promise<ToolReply> {
    const state = this.#states.get(guarded.key);
    const isProbe = state !== undefined && state.openUntil > 0;
    if (isProbe) {
      const waitMs = state.openUntil - this.#clock.now();
      if (waitMs > 0 || state.isProbing) return fallbackOrThrow(guarded, Math.max(waitMs, 1_000));
      state.isProbing = true;
    }
    try {
      const reply = await send();
      this.#states.delete(guarded.key);
      return reply;
    } catch (error) {
      this.#note(guarded, error);
      throw error;
    } finally {
      if (isProbe) state.isProbing = false;
    }
  }

  #note({ key, options, hasTimedOut }: Guarded, error: unknown): void {
    const verdict = verdictOf(error, hasTimedOut());
    if (verdict === "well") this.#states.delete(key);
    if (verdict !== "failed") return;
    const state = this.#states.get(key) ?? { failures: 0, openUntil: 0, isProbing: false };
    state.failures += 1;
    if (state.failures >= options.failures) state.openUntil = this.#clock.now() + options.open_ms;
    this.#states.set(key, state);
    if (this.#states.size <= most) return;
    const oldest = this.#states.keys().next().value;
    if (oldest !== undefined) this.#states.delete(oldest);
  }
}

function fallbackOrThrow({ options, name }: Guarded, waitMs: number): ToolReply {
  if (options.fallback !== undefined) return toReply(options.fallback);
  throw withDelivery(
    new GatewayError(
      "circuit_open",
      `'${name}' has failed ${options.failures} times in a row and is left alone for ${Math.ceil(waitMs / 1_000)} s; its 'breaker' sets how long.`,
      { retryAfterMs: waitMs },
    ),
    "not_sent",
  );
}

function toReply(fallback: JsonValue): ToolReply {
  const body = isJsonObject(fallback) ? { ...fallback, degraded: true } : { value: fallback, degraded: true };
  return { mediaType: "application/json", body: JSON.stringify(body) };
}

/** What an error says of the back end; undefined: nothing. */
export function verdictOf(error: unknown, hasTimedOut: boolean): "well" | "failed" | undefined {
  if (isAnswer(error)) return "well";
  return hasTimedOut || isFailure(error) ? "failed" : undefined;
}

function statusOf(error: unknown): number | undefined {
  const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
  return typeof status === "number" ? status : undefined;
}

/** The back end is well and does not want this. */
function isAnswer(error: unknown): boolean {
  const status = statusOf(error);
  return status !== undefined && status < 500 && status !== 429;
}

function isFailure(error: unknown): boolean {
  if (!(error instanceof GatewayError)) return false;
  return error.code === "tool_unreachable" || error.code === "tool_timeout" || (statusOf(error) ?? 0) >= 500;
}
