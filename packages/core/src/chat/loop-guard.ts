/** The hard limits of one chat; each ends it with its own code, never as a silent success (CHAT-12). */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Usage } from "../calls/usage.ts";
import { canonicalText } from "../json.ts";
import type { TenantSettings } from "../tenants/settings.ts";
import type { AssembledToolCall } from "./providers/provider.ts";

type GuardedCall = Pick<AssembledToolCall, "name" | "arguments">;

export interface LoopLimits extends Pick<
  TenantSettings,
  "rounds" | "calls_per_round" | "tokens_per_request" | "identical_calls"
> {
  /** Whose `rounds` and `calls_per_round` these are; absent: the tenant's own. */
  readonly agent?: string;
}

export class LoopGuard {
  #settings: LoopLimits;
  /** Made for the first call, as in most chats there is none. */
  #seen: Map<string, number> | undefined;
  #rounds = 0;

  constructor(settings: LoopLimits) {
    this.#settings = settings;
  }

  /** Another agent goes on: its rounds are its own, what has been called is not forgotten. */
  goOnWith(settings: LoopLimits): void {
    this.#settings = settings;
    this.#rounds = 0;
  }

  /** @throws GatewayError `rounds_exceeded`, `calls_exceeded`, `repeated_call`, `cost_exceeded` */
  admitRound(calls: readonly GuardedCall[], usage: Usage | undefined): void {
    this.#countRound();
    this.#checkExtent(calls, usage);
    for (const call of calls) {
      const repetition = this.#countCall(call);
      if (repetition !== undefined) throw new GatewayError("repeated_call", repetition, { toolName: call.name });
    }
  }

  /**
   * Calls of a dialect that counts its rounds itself, unless an agent has its own, and tells the model of repetitions.
   * @returns why the calls at these places must not run
   * @throws GatewayError `calls_exceeded`, `cost_exceeded`, `rounds_exceeded`
   */
  admitAsked(calls: readonly GuardedCall[], usage: Usage | undefined): ReadonlyMap<number, string> {
    if (this.#settings.agent !== undefined) this.#countRound();
    this.#checkExtent(calls, usage);
    return new Map(
      calls.flatMap((call, at) => {
        const repetition = this.#countCall(call);
        return repetition === undefined ? [] : [[at, repetition] as const];
      }),
    );
  }

  #countRound(): void {
    this.#rounds += 1;
    const { rounds } = this.#settings;
    if (this.#rounds <= rounds) return;
    throw new GatewayError(
      "rounds_exceeded",
      `The model still called tools after ${rounds} rounds (${this.#knob("rounds")}); what it said so far is attached.`,
    );
  }

  #knob(name: "rounds" | "calls_per_round"): string {
    const { agent } = this.#settings;
    return agent === undefined ? `setting '${name}'` : `limit '${name}' of agent '${agent}', or the tenant's setting`;
  }

  #checkExtent(calls: readonly GuardedCall[], usage: Usage | undefined): void {
    const { calls_per_round: perRound, tokens_per_request: tokens } = this.#settings;
    if (calls.length > perRound) {
      throw new GatewayError(
        "calls_exceeded",
        `The model asked for ${calls.length} tool calls in one turn; at most ${perRound} are run (${this.#knob("calls_per_round")}), so none was.`,
      );
    }
    if (usage !== undefined && usage.total_tokens > tokens) {
      throw new GatewayError(
        "cost_exceeded",
        `This request has used ${usage.total_tokens} tokens, more than ${tokens} (setting 'tokens_per_request').`,
      );
    }
  }

  /** What is wrong where the call has been made too often. */
  #countCall(call: GuardedCall): string | undefined {
    const identity = `${call.name} ${canonicalText(call.arguments)}`;
    this.#seen ??= new Map<string, number>();
    const count = (this.#seen.get(identity) ?? 0) + 1;
    this.#seen.set(identity, count);
    const most = this.#settings.identical_calls;
    if (count <= most) return undefined;
    return `The model called '${call.name}' with the same arguments ${count} times; more than ${most} end a request (setting 'identical_calls').`;
  }
}
