/**
 * VCP's text as a dialect of the one loop (VCP specification s. 4.6; VCP-10): `TOOL_REQUEST` blocks in a reply are
 * its calls, their results are a message of the user, and the client reads blocks and summaries in the answer.
 */
import type { Call } from "../../calls/call.ts";
import { outcomeOf } from "../../calls/new-call.ts";
import { withoutContent, type LateResults } from "../../chat/late-results.ts";
import type { TextAnswer, TextDialect, AskedCall } from "../../chat/text-dialect.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { handleOf, type ToolOutcome } from "../../tools/outcome.ts";
import { isScheme } from "../../tools/uri.ts";
import { publishFrames } from "../log/frames.ts";
import { distributedToolsOf } from "../nodes/distributed-tools.ts";
import { localTimestamp } from "../plugins/outcome.ts";
import { partsMediaType } from "../plugins/reply.ts";
import { textOf } from "../message-text.ts";
import { readConversation, withinTokens } from "./conversation.ts";
import { archeryFailure, asUsers, infoOf, payloadMessage, summaryOf } from "./messages.ts";
import { OpenTasks } from "./open-tasks.ts";
import { planCall, type PlannedCall } from "./plan-call.ts";
import { resultOf, type CallResult } from "./results.ts";
import { ToolRequestScanner } from "./scanner.ts";
import type { ToolRequest } from "./tool-request.ts";
import { wholeOf } from "./whole-result.ts";

export interface VcpChat {
  readonly context: CallContext;
  readonly isStream: boolean;
  /** The route, or the tenant, wants results shown to the client. */
  readonly showsResults: boolean;
  /** The gateway runs what the model asks for. */
  readonly runsTools: boolean;
  readonly messages: readonly JsonObject[];
  /** That the conversation may have; absent: it is left as it is. */
  readonly contextTokens?: number | undefined;
  /** Calls that have ended since the session's last answer. */
  readonly due: readonly Call[];
  /** Tools that work on a workspace may be called: the request names a session. */
  readonly hasSession: boolean;
}

export interface OpenedDialect {
  readonly messages: readonly JsonObject[];
  /** Undefined where nothing is run: the conversation forbids tools, or the request wants them for itself. */
  readonly dialect: TextDialect | undefined;
  readonly late: LateResults;
}

const vcpInfoClient = "VCPInfo";

export function openVcpDialect(deps: CoreDeps, chat: VcpChat): OpenedDialect {
  const { contextTokens } = chat;
  const given = contextTokens === undefined ? chat.messages : withinTokens(chat.messages, contextTokens);
  const { messages, isForbidden } = readConversation(given);
  return {
    messages,
    dialect: isForbidden || !chat.runsTools ? undefined : new VcpDialect(deps, chat),
    late: lateResults(chat, new Date(deps.clock.now())),
  };
}

/** As a payload that names their calls. */
function lateResults({ due, context }: VcpChat, at: Date): LateResults {
  const ofNodes = distributedToolsOf(context.config);
  const partsOf = (call: Call): readonly JsonObject[] => {
    const isOfPlugin = isScheme(call.uri, "vcp") || (isScheme(call.uri, "node") && ofNodes.has(call.tool));
    return resultOf({ name: call.tool, outcome: outcomeOf(call), isOfPlugin, at }).parts;
  };
  return {
    ids: due.map(({ id }) => id),
    messages: lateMessages(due, partsOf),
    withoutContent: () => lateMessages(due, (call) => [{ type: "text", text: withoutContent(call) }]),
  };
}

function lateMessages(due: readonly Call[], partsOf: (call: Call) => readonly JsonObject[]): readonly JsonObject[] {
  if (due.length === 0) return [];
  const parts = due.flatMap((call) => [{ type: "text", text: `${call.tool} (${call.id}):` }, ...partsOf(call)]);
  return [payloadMessage(parts)];
}

class VcpDialect implements TextDialect {
  readonly mostRounds: number;
  readonly #deps: CoreDeps;
  readonly #chat: VcpChat;
  readonly #withholds: boolean;
  #scanner: ToolRequestScanner;
  #requests: readonly ToolRequest[] = [];
  #planned: readonly PlannedCall[] = [];
  #isFirstReply = true;
  readonly #tasks: OpenTasks;

  constructor(deps: CoreDeps, chat: VcpChat) {
    this.#deps = deps;
    this.#chat = chat;
    const { settings } = chat.context.config;
    this.mostRounds = chat.isStream ? settings.max_vcp_loop_stream : settings.max_vcp_loop_non_stream;
    this.#withholds = settings.vcp_requests === "withheld";
    this.#scanner = this.#newScanner();
    this.#tasks = new OpenTasks(deps, chat.context);
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

  async calls(messages: readonly JsonObject[]): Promise<readonly AskedCall[]> {
    const { context, hasSession } = this.#chat;
    const options = { context, hasSession, messages };
    this.#planned = await Promise.all(this.#requests.map((request) => planCall(this.#deps, request, options)));
    return this.#planned.map(({ request, item }) => ({
      item,
      call: { name: request.name, arguments: toText(item.arguments) },
      isFirst: request.archery,
    }));
  }

  async answer(reply: JsonObject, outcomes: readonly ToolOutcome[]): Promise<TextAnswer> {
    const results = await Promise.all(this.#planned.map((planned, at) => this.#resultOf(planned, outcomes[at])));
    await this.#tellAccepted(results);
    const told = this.#toldOf(results);
    const goesOn = told.length > 0;
    const shown = results.filter((_result, at) => this.#chat.showsResults || this.#planned[at]?.request.markHistory);
    const text = `${shown.map(infoOf).join("")}${goesOn ? summaryOf(told) : ""}`;
    const message = this.#messageOf(reply);
    return {
      text: `${text === "" ? "" : this.#divided(text)}${goesOn ? "\n" : ""}`,
      messages: goesOn ? [message, this.#payloadOf(results, outcomes)] : [message],
      goesOn,
    };
  }

  update(messages: JsonObject[]): Promise<readonly string[]> {
    return this.#tasks.resolve(messages);
  }

  /** Of calls that nobody waits for, clients of VCPInfo hear that they have been taken on. */
  async #tellAccepted(results: readonly CallResult[]): Promise<void> {
    const accepted = results.filter(
      ({ end }, at) => end === "succeeded" && this.#planned[at]?.request.archeryNoReply === true,
    );
    if (accepted.length === 0) return;
    const timestamp = localTimestamp(new Date(this.#deps.clock.now()));
    const pushes = accepted.map(({ name }) => {
      const message = `${name} works on, and nobody waits for it.`;
      const said = { toolName: name, status: "success", noReply: true, message, timestamp };
      return { frame: { type: "TOOL_NO_REPLY_ACCEPTED", ...said }, targetClientType: vcpInfoClient };
    });
    try {
      await publishFrames(this.#deps, this.#chat.context.tenant, pushes);
    } catch (thrown) {
      this.#deps.log.log("warn", "clients of VCPInfo were not told", { error: toGatewayError(thrown).code });
    }
  }

  /** What the model hears of: an archery call that has succeeded is not. */
  #toldOf(results: readonly CallResult[]): readonly CallResult[] {
    const isArchery = (at: number): boolean => this.#planned[at]?.request.archery === true;
    return [
      ...results.filter((_result, at) => !isArchery(at)),
      ...results.filter(({ end }, at) => isArchery(at) && end !== "succeeded"),
    ];
  }

  #payloadOf(results: readonly CallResult[], outcomes: readonly ToolOutcome[]): JsonObject {
    const archery = new Set(this.#planned.flatMap(({ request }, at) => (request.archery ? [at] : [])));
    const write = (written: readonly CallResult[]): JsonObject =>
      payloadMessage([
        ...written.flatMap((result, at) => (archery.has(at) ? [] : result.parts)),
        ...written.flatMap((result, at) =>
          archery.has(at) && result.end !== "succeeded" ? [archeryFailure(result)] : [],
        ),
      ]);
    const message = write(results);
    const working = results.flatMap((result, at) => {
      const outcome = outcomes[at];
      return outcome?.kind === "pending" ? [{ callId: outcome.callId, result }] : [];
    });
    this.#tasks.add({ message, results, write }, working);
    return message;
  }

  /** As upstream has it: replies that are given as a whole begin on a line of their own. */
  #messageOf(reply: JsonObject): JsonObject {
    const text = textOf(reply);
    const content = this.#chat.isStream || this.#isFirstReply ? text : `\n${text}`;
    this.#isFirstReply = false;
    return { role: "assistant", content };
  }

  shows(outcome: ToolOutcome): boolean {
    return handleOf(outcome)?.mediaType === partsMediaType;
  }

  #divided(text: string): string {
    return this.#chat.context.config.settings.vcp_role_divider ? asUsers(text) : text;
  }

  async #resultOf(planned: PlannedCall, outcome: ToolOutcome | undefined): Promise<CallResult> {
    const { request, isOfPlugin, isText = false, finish } = planned;
    const result = resultOf({
      name: request.name,
      outcome: outcome ?? { kind: "failed", code: "internal_error", message: "The call was not run." },
      whole: outcome === undefined ? undefined : await wholeOf(this.#deps, this.#chat.context, { outcome }),
      maid: request.args["maid"],
      isOfPlugin,
      isText,
      at: new Date(this.#deps.clock.now()),
    });
    return finish?.(result) ?? result;
  }

  #newScanner(): ToolRequestScanner {
    const { vcp_fuzzy_matching: fuzzy } = this.#chat.context.config.settings;
    return new ToolRequestScanner({ fuzzy, withholds: this.#withholds });
  }
}

function toText(args: string | JsonObject): string {
  return typeof args === "string" ? args : JSON.stringify(args);
}
