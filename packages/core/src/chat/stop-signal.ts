/** Everything that can end a chat from outside, with its reason. */
import type { Spent } from "../budgets/cost.ts";
import { holdLease, processEnd, reasonOf, type Lease } from "../calls/lease.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { OpenedChat } from "./opened-chat.ts";

export class StopSignal {
  readonly #stop: AbortController;
  readonly #wallClockMs: number;
  readonly #isAgent: boolean;
  readonly #lease: Lease;
  readonly #timer: NodeJS.Timeout;
  /** Undefined where it came with the signal: the client has left, or the process must end. */
  #reason: { readonly error: GatewayError; readonly isCancelled: boolean } | undefined;

  constructor(deps: CoreDeps, chat: OpenedChat, spent: () => Spent | undefined) {
    this.#stop = chat.stop;
    this.#wallClockMs = chat.wallClockMs;
    this.#isAgent = chat.agent !== undefined;
    this.#lease = holdLease(deps, {
      tenant: chat.context.tenant,
      id: chat.callId,
      attempt: 1,
      pollCancel: true,
      spent,
      onEnd: (why) => this.#end(why === "lost" ? interrupted() : cancelled(), true, reasonOf(why)),
    });
    this.#timer = setTimeout(StopSignal.#onTimer, chat.wallClockMs, this);
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get isCancelled(): boolean {
    return this.#reason?.isCancelled ?? (this.signal.aborted && processEnd(this.signal) === undefined);
  }

  reasonAsError(): GatewayError | undefined {
    if (!this.signal.aborted) return undefined;
    return this.#reason?.error ?? outsideReason(this.signal);
  }

  throwIfStopped(): void {
    const error = this.reasonAsError();
    if (error !== undefined) throw error;
  }

  /** Nobody reads the answer any more. */
  abandon(): void {
    this.#stop.abort();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#lease.stop();
  }

  // One function for all timers: a closure for each chat would be garbage on the hottest path.
  static readonly #onTimer = (stop: StopSignal): void => {
    const whose = stop.#isAgent ? "setting or limit of the agent" : "setting";
    const limit = `${stop.#wallClockMs} ms (${whose} 'wall_clock_ms', or the time limit of the client or of the host)`;
    stop.#end(new GatewayError("wall_clock_exceeded", `The request took longer than ${limit}.`), false);
  };

  /** @param reason of the signal, for what is under way */
  #end(error: GatewayError, isCancelled: boolean, reason?: symbol): void {
    if (this.signal.aborted) return;
    this.#reason = { error, isCancelled };
    this.#stop.abort(reason);
  }
}

/** @param signal has been aborted by whoever answers the client */
export function outsideReason(signal: AbortSignal): GatewayError {
  return processEnd(signal) ?? clientLeft();
}

export function clientLeft(): GatewayError {
  return new GatewayError("request_cancelled", "The client left before the answer was complete.");
}

export function interrupted(): GatewayError {
  return new GatewayError("chat_interrupted", "Another instance has taken this chat over.");
}

export function cancelled(): GatewayError {
  return new GatewayError(
    "request_cancelled",
    "The request was cancelled by POST /v1/interrupt or /v1/calls/{id}/cancel.",
  );
}
