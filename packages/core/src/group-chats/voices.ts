/** The agents of a room as they speak: runs of agents under the turn's call (agents/run-agent.ts). */
import { findAgent, type AgentRecord } from "../agents/agent.ts";
import { runAgent, type AgentEvent } from "../agents/run-agent.ts";
import type { CallPlace } from "../calls/new-call.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError, type GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { findTool } from "../tools/catalog.ts";
import type { NewGroupChatMember } from "./group-chat.ts";

export interface Spent {
  readonly tokens: number;
  readonly micros: number;
}

export interface Saying extends Spent {
  /** Why it did not come to its end. */
  readonly error: GatewayError | undefined;
  /** The run; null: none was begun. */
  readonly callId: string | null;
  readonly readOutside: boolean;
}

export interface Asked {
  readonly messages: readonly JsonObject[];
  /** Of the message that is made: what its run writes is found again under it, should it have to be begun anew. */
  readonly messageId: string;
  readonly isRepeated: boolean;
  /** What it is told has been made of content from outside. */
  readonly readOutside: boolean;
  readonly signal: AbortSignal;
  /** @returns whether more is wanted; else its run ends here */
  readonly onText: (text: string) => boolean;
  /** Something else than text has happened. */
  readonly onPause: () => void;
}

export class Voices {
  readonly #deps: CoreDeps;
  readonly #context: CallContext;
  readonly #turnId: string;
  readonly #room: string;
  /** Of who speaks. */
  callId: string | null = null;

  constructor(deps: CoreDeps, context: CallContext, turn: { readonly turnId: string; readonly groupChat: string }) {
    this.#deps = deps;
    this.#context = context;
    this.#turnId = turn.turnId;
    this.#room = turn.groupChat;
  }

  get deps(): CoreDeps {
    return this.#deps;
  }

  get context(): CallContext {
    return this.#context;
  }

  /** Undefined: there is none of this name, or it is disabled. */
  find(name: string): AgentRecord | undefined {
    const agent = findAgent(this.#context.config.agents, name);
    return agent?.enabled === true ? agent : undefined;
  }

  descriptions(agents: readonly NewGroupChatMember[]): ReadonlyMap<string, string> {
    return new Map(agents.map(({ name }) => [name, this.find(name)?.description ?? ""]));
  }

  placeOf(rootId: string | null): CallPlace {
    const via = [{ kind: "group_chat", id: this.#room }];
    return { route: "group_chats.turn", parentId: this.#turnId, rootId, via };
  }

  /** Never throws but where the database is away. */
  async speak(name: string, asked: Asked): Promise<Saying> {
    this.callId = null;
    const heard = new Heard(asked, (tool) => this.#bringsOutside(tool));
    try {
      const events = runAgent(this.#deps, this.#context, {
        agent: name,
        messages: asked.messages,
        place: this.placeOf(asked.messageId),
        signal: asked.signal,
        readOutside: asked.readOutside,
        isRepeated: asked.isRepeated,
      });
      for await (const event of events) {
        if (event.type === "thinking") this.callId ??= event.chatId;
        heard.take(event);
        // Its model is left, and what it has used by then is on the record of its run.
        if (heard.isEnough) break;
      }
    } catch (thrown) {
      heard.fail(toGatewayError(thrown));
    }
    const { callId } = this;
    const spent = heard.isEnough && callId !== null ? await this.#recorded(callId) : {};
    return { ...heard.result, ...spent, callId };
  }

  async #recorded(callId: string): Promise<Spent> {
    const call = await this.#deps.repos.calls.get(this.#context.tenant, callId);
    return { tokens: call?.usage?.total_tokens ?? 0, micros: call?.cost?.micros ?? 0 };
  }

  /** A tool that is not there any more may have brought anything. */
  #bringsOutside(tool: string): boolean {
    try {
      return findTool(this.#deps.adapters, this.#context, tool).tool.outputTrust === "outside";
    } catch {
      return true;
    }
  }
}

/** What came of a run by its events. */
class Heard {
  readonly #asked: Pick<Asked, "onText" | "onPause">;
  readonly #bringsOutside: (tool: string) => boolean;
  #readOutside: boolean;
  #error: GatewayError | undefined;
  #tokens = 0;
  #micros = 0;
  isEnough = false;

  constructor(asked: Asked, bringsOutside: (tool: string) => boolean) {
    this.#asked = asked;
    this.#bringsOutside = bringsOutside;
    this.#readOutside = asked.readOutside;
  }

  take(event: AgentEvent): void {
    switch (event.type) {
      case "text-delta":
      case "refusal-delta":
        if (event.text !== "") this.isEnough = !this.#asked.onText(event.text);
        return;
      case "tool-result":
        this.#readOutside ||= this.#bringsOutside(event.tool);
        return;
      case "usage":
        this.#tokens = event.usage.total_tokens;
        return;
      case "finish":
        this.#micros = event.micros ?? 0;
        return;
      case "error":
        this.fail(event.error);
        return;
      case "approval-required":
      case "handoff":
      case "other-delta":
      case "reasoning-delta":
      case "start":
      case "thinking":
      case "tool-call":
      case "tool-call-delta":
      case "tool-pending":
        this.#asked.onPause();
        return;
      default:
        event satisfies never;
    }
  }

  fail(error: GatewayError): void {
    this.#error ??= error;
  }

  get result(): Omit<Saying, "callId"> {
    return { error: this.#error, readOutside: this.#readOutside, tokens: this.#tokens, micros: this.#micros };
  }
}
