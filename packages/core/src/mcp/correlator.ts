/**
 * Requests and answers on one connection that carries all messages of a session, told apart by their ids.
 * When the connection ends, what was asked and not answered may have taken effect or not.
 */
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { RpcId, RpcMessage, RpcNotice, RpcRequest, RpcResponse } from "./json-rpc.ts";
import { refuseRequests, type ExchangeOptions, type RequestAnswerer } from "./transport.ts";

interface Pending {
  readonly resolve: (answer: RpcResponse) => void;
  readonly reject: (error: Error) => void;
  readonly onNotice: ExchangeOptions["onNotice"];
}

type WaitOptions = Pick<ExchangeOptions, "onNotice" | "timeoutMs" | "signal">;

export interface CorrelatorOptions {
  /** `mcp://maps`: what errors call the server. */
  readonly name: string;
  /** Sends what the server asks for beside calls. @throws AsksTooMuch */
  readonly reply: (text: string) => void;
}

export class Correlator {
  readonly #options: CorrelatorOptions;
  readonly #pending = new Map<RpcId, Pending>();
  readonly #listeners = new Set<(notice: RpcNotice) => void>();
  readonly #ended: Promise<void>;
  #end: () => void = () => undefined;
  #isOver = false;
  #answerRequest = refuseRequests;

  constructor(options: CorrelatorOptions) {
    this.#options = options;
    this.#ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  serve(answer: RequestAnswerer): void {
    this.#answerRequest = answer;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * @param send hands the request to the connection
   * @throws GatewayError of `send`; uncertain where there is no answer in time or the connection ends
   */
  async request(request: RpcRequest, options: WaitOptions, send: () => Promise<void>): Promise<RpcResponse> {
    const { id } = request;
    if (this.#isOver) throw withDelivery(toEnded(this.#options.name), "not_sent");
    const answer = new Promise<RpcResponse>((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, onNotice: options.onNotice });
    });
    // It may be rejected while the request is still being handed over.
    answer.catch(() => undefined);
    const giveUp = (): void => this.#pending.get(id)?.reject(toSilence(this.#options.name, options.timeoutMs));
    const timer = setTimeout(giveUp, Math.min(options.timeoutMs, 2_147_483_647));
    options.signal.addEventListener("abort", giveUp, { once: true });
    try {
      await Promise.race([send(), answer]);
      if (options.signal.aborted) giveUp();
      return await answer;
    } finally {
      clearTimeout(timer);
      options.signal.removeEventListener("abort", giveUp);
      this.#pending.delete(id);
    }
  }

  /** @throws AsksTooMuch */
  receive(messages: readonly RpcMessage[]): void {
    for (const message of messages) {
      switch (message.kind) {
        case "result":
        case "error":
        case "too-deep":
          if (message.id !== null) this.#pending.get(message.id)?.resolve(message);
          break;
        case "notice":
          for (const pending of this.#pending.values()) tell(pending, message);
          for (const listener of this.#listeners) listener(message);
          break;
        case "request":
          this.#options.reply(this.#answerRequest(message));
          break;
        default:
          message satisfies never;
      }
    }
  }

  /** Until the connection ends. */
  async listen(onNotice: (notice: RpcNotice) => void): Promise<void> {
    this.#listeners.add(onNotice);
    await this.#ended;
    this.#listeners.delete(onNotice);
  }

  /** The connection is gone. */
  end(error: Error = withDelivery(toEnded(this.#options.name), "uncertain")): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#end();
  }
}

/** Whoever cannot take what is told of their request has that request ended by it, and nobody else's. */
function tell({ onNotice, reject }: Pending, notice: RpcNotice): void {
  try {
    onNotice?.(notice);
  } catch (error) {
    reject(withDelivery(toGatewayError(error), "uncertain"));
  }
}

function toEnded(name: string): GatewayError {
  return new GatewayError("tool_unreachable", `'${name}' ended the connection before it answered.`);
}

function toSilence(name: string, timeoutMs: number): GatewayError {
  return withDelivery(
    new GatewayError("tool_timeout", `'${name}' did not answer within ${timeoutMs} ms.`),
    "uncertain",
  );
}
