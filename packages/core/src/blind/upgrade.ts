/**
 * One request that asks for another protocol on its connection: either the socket, or why there is none.
 */
import type { Duplex } from "node:stream";
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import { toGivenUp, toUnreachable, type Peer } from "./egress-errors.ts";
import type { ExchangeController, ReplyHeaders } from "./exchange.ts";

export interface UpgradeOptions {
  /** For messages. */
  readonly peer: Peer;
  readonly signal: AbortSignal;
}

export interface Upgraded {
  readonly headers: ReplyHeaders;
  readonly socket: Duplex;
}

/** The handler of one dispatch. */
export class Upgrade {
  readonly done: Promise<Upgraded>;
  readonly #options: UpgradeOptions;
  #settle: { readonly resolve: (upgraded: Upgraded) => void; readonly reject: (error: Error) => void } | undefined;
  #controller: ExchangeController | undefined;
  readonly #onAbort: () => void;

  constructor(options: UpgradeOptions) {
    this.#options = options;
    this.done = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#onAbort = () => this.#giveUp();
    if (options.signal.aborted) this.#giveUp();
    else options.signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  onRequestStart(controller: ExchangeController): void {
    if (this.#settle === undefined) throw new Error("given up while waiting for a connection");
    this.#controller = controller;
  }

  onRequestUpgrade(_controller: ExchangeController, _status: number, headers: ReplyHeaders, socket: Duplex): void {
    if (this.#settle === undefined) {
      socket.destroy();
      return;
    }
    this.#settle.resolve({ headers, socket });
    this.#finish();
  }

  /** An answer like any other: the peer stays with HTTP. */
  onResponseStart(controller: ExchangeController, status: number): void {
    if (status < 200) return;
    const name = this.#options.peer.name ?? this.#options.peer.host;
    const message = `'${name}' answered with status ${status} instead of taking another protocol.`;
    this.#fail(withDelivery(new GatewayError("tool_failed", message, { extra: { status } }), "answered"));
    controller.abort(new Error("the answer is not read"));
  }

  onResponseData(): void {
    // Left with the connection.
  }

  onResponseEnd(): void {
    // Said already.
  }

  onResponseError(_controller: ExchangeController | null, error: Error): void {
    this.#fail(toUnreachable(error, { peer: this.#options.peer, isSent: this.#controller !== undefined }));
  }

  #giveUp(): void {
    const error = withDelivery(toGivenUp(this.#options.signal.reason), "not_sent");
    this.#fail(error);
    this.#controller?.abort(error);
  }

  #fail(error: Error): void {
    this.#settle?.reject(error);
    this.#finish();
  }

  #finish(): void {
    this.#settle = undefined;
    this.#options.signal.removeEventListener("abort", this.#onAbort);
  }
}
