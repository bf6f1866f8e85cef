/** The hard limits of one chat; each ends it with its own code, never as a silent success (CHAT-12). */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Usage } from "../calls/call.ts";
import { canonicalJson, parseJson } from "../json.ts";
import type { TenantSettings } from "../tenant-config.ts";
import type { AssembledToolCall } from "./providers/provider.ts";

export class LoopGuard {
  readonly #settings: TenantSettings;
  readonly #seen = new Map<string, number>();
  #rounds = 0;

  constructor(settings: TenantSettings) {
    this.#settings = settings;
  }

  /** @throws GatewayError `rounds_exceeded`, `calls_exceeded`, `repeated_call`, `cost_exceeded` */
  admitRound(calls: readonly AssembledToolCall[], usage: Usage | undefined): void {
    this.#rounds += 1;
    const { rounds, calls_per_round: perRound, tokens_per_request: tokens } = this.#settings;
    if (this.#rounds > rounds) {
      throw new GatewayError(
        "rounds_exceeded",
        `The model still called tools after ${rounds} rounds (setting 'rounds'); what it said so far is attached.`,
      );
    }
    if (calls.length > perRound) {
      throw new GatewayError(
        "calls_exceeded",
        `The model asked for ${calls.length} tool calls in one turn; at most ${perRound} are run (setting 'calls_per_round'), so none was.`,
      );
    }
    if (usage !== undefined && usage.total_tokens > tokens) {
      throw new GatewayError(
        "cost_exceeded",
        `This request has used ${usage.total_tokens} tokens, more than ${tokens} (setting 'tokens_per_request').`,
      );
    }
    for (const call of calls) this.#countCall(call);
  }

  #countCall(call: AssembledToolCall): void {
    const identity = `${call.name} ${canonicalJson(parseJson(call.arguments) ?? call.arguments)}`;
    const count = (this.#seen.get(identity) ?? 0) + 1;
    this.#seen.set(identity, count);
    if (count > this.#settings.identical_calls) {
      throw new GatewayError(
        "repeated_call",
        `The model called '${call.name}' with the same arguments ${count} times; more than ${this.#settings.identical_calls} end a request (setting 'identical_calls').`,
        { toolName: call.name },
      );
    }
  }
}
