/**
 * VCP's text as a dialect of the one loop (VCP specification s. 4.6; VCP-10): `TOOL_REQUEST` blocks in a reply are
 * its calls, their results are a message of the user, and the client reads blocks and summaries in the answer.
 */
import { openHandle } from "../../calls/open-handle.ts";
import type { TextAnswer, TextDialect, AskedCall } from "../../chat/text-dialect.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { readAll } from "../../ports/blob-store.ts";
import type { FoundTool } from "../../tools/catalog.ts";
import type { ToolOutcome } from "../../tools/outcome.ts";
import type { DispatchItem } from "../../tools/prepare.ts";
import { readConversation, riverOf, textOf } from "./conversation.ts";
import { argumentsFor, findByName } from "./find-tool.ts";
import { archeryFailure, asUsers, infoOf, payloadMessage, summaryOf } from "./messages.ts";
import { resultOf, type CallResult } from "./results.ts";
import { ToolRequestScanner } from "./scanner.ts";
import type { ToolRequest } from "./tool-request.ts";

export interface VcpChat {
  readonly context: CallContext;
  readonly isStream: boolean;
  /** The route, or the tenant, wants results shown to the client. */
  readonly showsResults: boolean;
  readonly messages: readonly JsonObject[];
  /** Tools that work on a workspace may be called: the request names a session. */
  readonly hasSession: boolean;
}

export interface OpenedDialect {
  readonly messages: readonly JsonObject[];
  /** Undefined where the conversation forbids tools. */
  readonly dialect: TextDialect | undefined;
}

export function openVcpDialect(deps: CoreDeps, chat: VcpChat): OpenedDialect {
  const { messages, isForbidden } = readConversation(chat.messages);
  return { messages, dialect: isForbidden ? undefined : new VcpDialect(deps, chat) };
}

interface Asked {
  readonly request: ToolRequest;
  readonly found: FoundTool | undefined;
}

class VcpDialect implements TextDialect {
  readonly mostRounds: number;
  readonly #deps: CoreDeps;
  readonly #chat: VcpChat;
  readonly #withholds: boolean;
  #scanner: ToolRequestScanner;
  #requests: readonly ToolRequest[] = [];
  #asked: readonly Asked[] = [];
  #isFirstReply = true;

  constructor(deps: CoreDeps, chat: VcpChat) {
    this.#deps = deps;
    this.#chat = chat;
    const { settings } = chat.context.config;
    this.mostRounds = chat.isStream ? settings.max_vcp_loop_stream : settings.max_vcp_loop_non_stream;
    this.#withholds = settings.vcp_requests === "withheld";
    this.#scanner = this.#newScanner();
  }

  get asks(): boolean {
    return this.#requests.length > 0;
  }

  read(text: string): string | undefined {
    const shown = this.#scanner.feed(text);
    return this.#withholds ? shown : undefined;
  }

  endReply(): string {
    const { requests, visible } = this.#scanner.end();
    this.#requests = requests;
    this.#scanner = this.#newScanner();
    return visible;
  }

  calls(messages: readonly JsonObject[]): readonly AskedCall[] {
    const { context } = this.#chat;
    this.#asked = this.#requests.map((request) => ({
      request,
      found: findByName(this.#deps.adapters, context, request.name),
    }));
    return this.#asked.map(({ request, found }) => ({
      item: this.#itemOf(request, found, messages),
      call: { name: request.name, arguments: JSON.stringify(request.args) },
      isFirst: request.archery,
    }));
  }

  async answer(reply: JsonObject, outcomes: readonly ToolOutcome[]): Promise<TextAnswer> {
    const results = await Promise.all(
      this.#asked.map(async ({ request, found }, at) => ({
        request,
        result: await this.#resultOf(request, found, outcomes[at]),
      })),
    );
    const normal = results.filter(({ request }) => !request.archery);
    const failures = results.filter(({ request, result }) => request.archery && result.end !== "succeeded");
    const told = [...normal, ...failures].map(({ result }) => result);
    const goesOn = told.length > 0;
    const shown = results.filter(({ request }) => this.#chat.showsResults || request.markHistory);
    const infos = shown.map(({ result }) => infoOf(result)).join("");
    const parts = [
      ...normal.flatMap(({ result }) => result.parts),
      ...failures.map(({ result }) => archeryFailure(result)),
    ];
    const text = `${infos}${goesOn ? summaryOf(told) : ""}`;
    const message = this.#messageOf(reply);
    return {
      text: `${text === "" ? "" : this.#divided(text)}${goesOn ? "\n" : ""}`,
      messages: [message, ...(parts.length === 0 ? [] : [payloadMessage(parts)])],
      goesOn,
    };
  }

  async update(): Promise<void> {}

  /** As upstream has it: replies that are given as a whole begin on a line of their own. */
  #messageOf(reply: JsonObject): JsonObject {
    const text = textOf(reply);
    const content = this.#chat.isStream || this.#isFirstReply ? text : `\n${text}`;
    this.#isFirstReply = false;
    return { role: "assistant", content };
  }

  #divided(text: string): string {
    return this.#chat.context.config.settings.vcp_role_divider ? asUsers(text) : text;
  }

  #itemOf(request: ToolRequest, found: FoundTool | undefined, messages: readonly JsonObject[]): DispatchItem {
    const { name, flaw } = request;
    if (flaw !== undefined) {
      return { target: found?.tool.uri ?? name, arguments: {}, refusal: flaw };
    }
    if (found === undefined) return { target: name, arguments: request.args, isOffered: false };
    return {
      target: found.tool.uri,
      arguments: argumentsFor(found.tool, { ...request.args, ...this.#extrasOf(request, messages) }),
      isOffered: this.#mayCall(found),
    };
  }

  /** Workspace tools need a workspace; a request that names no session does not ask for one. */
  #mayCall({ tool }: FoundTool): boolean {
    const { context, hasSession } = this.#chat;
    return tool.kind !== "NATIVE" || hasSession || context.caller.tools?.includes(tool.name) === true;
  }

  #extrasOf({ river, vref }: ToolRequest, messages: readonly JsonObject[]): JsonObject {
    const context = river === null ? undefined : riverOf(messages, river);
    return {
      ...(context === undefined ? {} : { river_context: context }),
      // There is no knowledge base to take files from.
      ...(vref === null ? {} : { vref_files: [] }),
    };
  }

  async #resultOf(
    request: ToolRequest,
    found: FoundTool | undefined,
    outcome: ToolOutcome | undefined,
  ): Promise<CallResult> {
    return resultOf({
      name: request.name,
      outcome: outcome ?? { kind: "failed", code: "internal_error", message: "The call was not run." },
      whole: outcome === undefined ? undefined : await this.#wholeOf(outcome),
      maid: request.args["maid"],
      isOfPlugin: found?.tool.kind === "VCP",
      at: new Date(this.#deps.clock.now()),
    });
  }

  /** Of a result that is more than text, the whole: its parts go to the model. */
  async #wholeOf(outcome: ToolOutcome): Promise<string | undefined> {
    if (outcome.kind !== "completed" || outcome.handle === undefined) return undefined;
    const { callId, bytes, mediaType } = outcome.handle;
    if (!mediaType.includes("profile=vcp-result") || bytes > mostBytesOfParts) return undefined;
    try {
      const { body } = await openHandle(this.#deps, this.#chat.context, callId);
      return Buffer.from(await readAll(body)).toString("utf8");
    } catch (thrown) {
      const { code } = toGatewayError(thrown);
      this.#deps.log.log("warn", "parts of a result cannot be read", { call_id: callId, error: code });
      return undefined;
    }
  }

  #newScanner(): ToolRequestScanner {
    const { vcp_fuzzy_matching: fuzzy } = this.#chat.context.config.settings;
    return new ToolRequestScanner({ fuzzy, withholds: this.#withholds });
  }
}

/** Parts of larger results stay behind their handle. */
const mostBytesOfParts = 8_388_608;
