/** The calls of an answer as its client is told of them: whose they are, under which id, and at which place. */
import { newId } from "../ids.ts";
import type { ChatEvent } from "./events.ts";
import { clientCallId, toClientCall } from "./kept-turns.ts";
import type { AssembledToolCall, ProviderEvent } from "./providers/provider.ts";

export type CallOwner = "client" | "gateway";

interface MintedCall {
  /** What the client sees. */
  readonly id: string;
  readonly owner: CallOwner;
  /** Among the calls of its choice. */
  readonly index: number;
}

export interface OwnedCall {
  readonly call: AssembledToolCall;
  readonly owner: CallOwner;
  /** What the client sees. */
  readonly clientId: string;
  readonly index: number;
  readonly choice: number;
}

export interface ToldCallsOptions {
  readonly ownerOf: (name: string) => CallOwner;
  /** Is a turn that ends with calls of the client to be continued with what is kept of it alone? */
  readonly isContinuedFromKept: () => boolean;
}

export class ToldCalls {
  readonly #options: ToldCallsOptions;
  /** Told of so far, by choice. */
  readonly #counts = new Map<number, number>();
  /** Of the round's calls, by choice and position. */
  readonly #ids = new Map<number, Map<number, MintedCall>>();

  constructor(options: ToldCallsOptions) {
    this.#options = options;
  }

  ownerOf(name: string): CallOwner {
    return this.#options.ownerOf(name);
  }

  startRound(): void {
    this.#ids.clear();
  }

  nextIndex(choice: number): number {
    const index = this.#counts.get(choice) ?? 0;
    this.#counts.set(choice, index + 1);
    return index;
  }

  own(call: AssembledToolCall, choice: number, at: number): OwnedCall {
    const { id, owner, index } = this.#minted(choice, at, call.name);
    return { call, owner, clientId: id, index, choice };
  }

  delta(event: Extract<ProviderEvent, { type: "tool-call-delta" }>): ChatEvent {
    const known = this.#minted(event.choice, event.index, event.name ?? "");
    return {
      type: "tool-call-delta",
      owner: known.owner,
      index: known.index,
      arguments: event.arguments,
      choice: event.choice,
      ...(event.id === undefined && event.name === undefined ? {} : { id: known.id }),
      ...(event.name === undefined ? {} : { name: event.name }),
      ...(event.custom === undefined ? {} : { custom: event.custom }),
      ...(event.extra === undefined || known.owner === "gateway" ? {} : { extra: event.extra }),
    };
  }

  #minted(choice: number, at: number, name: string): MintedCall {
    let ids = this.#ids.get(choice);
    if (ids === undefined) this.#ids.set(choice, (ids = new Map<number, MintedCall>()));
    let minted = ids.get(at);
    if (minted === undefined) {
      const owner = this.#options.ownerOf(name);
      const isKept = owner === "client" && this.#options.isContinuedFromKept();
      minted = { id: clientCallId(newId("call"), isKept), owner, index: this.nextIndex(choice) };
      ids.set(at, minted);
    }
    return minted;
  }
}

export function toCallEvent({ clientId, owner, index, call, choice }: OwnedCall): ChatEvent {
  return { type: "tool-call", owner, index, call: toClientCall(call, clientId), choice };
}
