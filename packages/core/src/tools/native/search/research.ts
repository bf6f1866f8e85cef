/**
 * The search itself: plan, search, read, judge, search again, answer. Every question to a model and every call of a
 * tool is one of its own below this call: admitted, limited, billed and recorded like all others.
 */
import { randomBytes } from "node:crypto";
import { invokeTool } from "../../../calls/invoke.ts";
import { catalog } from "../../../errors/catalog.ts";
import { GatewayError, toGatewayError } from "../../../errors/gateway-error.ts";
import type { JsonObject } from "../../../json.ts";
import { askModelWithUsage } from "../../../vcp/pipeline/ask-model.ts";
import { withDelivery } from "../../../errors/delivery.ts";
import type { ToolReply } from "../../tool-call.ts";
import type { DeepSearchInput } from "../deep-search.ts";
import { jsonReply, type NativeRun } from "../native-tool.ts";
import { SearchBudget } from "./budget.ts";
import { checkCitations } from "./citations.ts";
import { findingsOf, pageText, type Finding } from "./documents.ts";
import { createPrompts, readJsonAnswer, readQueries, type Prompts, type ReadSource } from "./prompts.ts";
import { sourcesFor, type SearchSource } from "./sources.ts";

const route = "deep_search";
const usualTokens = 80_000;
const usualCalls = 30;
/** Of the call's time for telling what came of it. */
const aroundMs = 2_000;
/** Characters of a source that a model reads. */
const mostSourceCharacters = 6_000;
const mostSources = 24;
/** A finding with more than this has been read by the search itself. */
const enoughCharacters = 1_200;
const pagesPerRound = 4;
const findingsPerSearch = 5;
const charactersPerToken = 3;

interface KeptSource extends ReadSource {
  readonly tool: string;
  readonly callId: string;
}

/** @throws GatewayError `invalid_arguments` where there is nothing to search by; what refuses the first question */
export async function research(asked: DeepSearchInput, run: NativeRun): Promise<ToolReply> {
  const { context, deps, call } = run;
  const sources = sourcesFor(deps, context, asked.sources);
  const whole = call.timeoutMs ?? context.config.settings.tool_timeout_ms;
  const { tokens = usualTokens, calls = usualCalls, ms } = asked.budget ?? {};
  const most = Math.max(1_000, whole - aroundMs);
  const budget = new SearchBudget(deps.clock, { tokens, calls, ms: Math.min(ms ?? most, most) }, context.signal);
  try {
    return jsonReply(await new Research(asked, run, { sources, budget }).run());
  } finally {
    budget.close();
  }
}

class Research {
  readonly #asked: DeepSearchInput;
  readonly #run: NativeRun;
  readonly #sources: readonly SearchSource[];
  readonly #budget: SearchBudget;
  readonly #prompts: Prompts = createPrompts(randomBytes(6).toString("hex"));
  readonly #read: KeptSource[] = [];
  readonly #queries = new Set<string>();
  readonly #failed = new Map<string, { readonly code: string; readonly message: string }>();
  readonly #seen = new Set<string>();
  #rounds = 0;

  constructor(
    asked: DeepSearchInput,
    run: NativeRun,
    { sources, budget }: { readonly sources: readonly SearchSource[]; readonly budget: SearchBudget },
  ) {
    this.#asked = asked;
    this.#run = run;
    this.#sources = sources;
    this.#budget = budget;
  }

  async run(): Promise<JsonObject> {
    await this.#search();
    this.#throwIfCancelled();
    const answer = await this.#answer();
    this.#throwIfCancelled();
    return this.#result(answer);
  }

  #throwIfCancelled(): void {
    if (!this.#run.context.signal.aborted) return;
    throw withDelivery(new GatewayError("call_cancelled", "The search was given up with its call."), "answered");
  }

  async #search(): Promise<void> {
    const { question, max_rounds: most } = this.#asked;
    this.#tell("planning");
    const planned = await this.#ask(this.#prompts.plan(question), "searching");
    let queries = readQueries(planned === undefined ? undefined : readJsonAnswer(planned), this.#queries);
    // A model that plans nothing does not keep anybody from searching for the question itself.
    if (queries.length === 0) queries = [question.slice(0, 500)];
    for (;;) {
      if (this.#budget.cut !== undefined) return;
      this.#rounds += 1;
      for (const query of queries) this.#queries.add(query);
      await this.#searchFor(queries);
      if (this.#budget.cut !== undefined) return;
      this.#tell("judging what was found");
      const judged = await this.#ask(this.#prompts.judge(question, this.#read, [...this.#queries]), "searching");
      const verdict = judged === undefined ? undefined : readJsonAnswer(judged);
      if (verdict === undefined || verdict["sufficient"] === true) return;
      queries = readQueries(verdict, this.#queries);
      if (queries.length === 0) return;
      if (this.#rounds >= most) {
        this.#budget.end(
          "rounds_exceeded",
          `What was found in ${most} rounds was not judged to suffice ('max_rounds').`,
        );
        return;
      }
    }
  }

  async #searchFor(queries: readonly string[]): Promise<void> {
    const searches = queries.flatMap((query) => this.#sources.map((source) => ({ query, source })));
    this.#tell(`searching for ${queries.map((query) => JSON.stringify(query)).join(", ")}`);
    const found = await Promise.all(
      searches.map(async ({ query, source }) => {
        const outcome = await this.#call(source.target, source.argumentsFor(query), source.tool.name);
        if (outcome === undefined) return [];
        return findingsOf(outcome.text, source.tool.name)
          .slice(0, findingsPerSearch)
          .map((finding) => ({ finding, tool: source.tool.name, callId: outcome.callId }));
      }),
    );
    // In turns, so that no source fills the room before the others had theirs.
    const longest = Math.max(0, ...found.map((list) => list.length));
    const inTurns = Array.from({ length: longest }, (_, at) => found.flatMap((list) => list[at] ?? [])).flat();
    await this.#keep(inTurns.filter(({ finding }) => this.#isNew(finding)));
  }

  #isNew({ url, text, title }: Finding): boolean {
    const key = url ?? `${title}\n${text}`;
    if (this.#seen.has(key)) return false;
    this.#seen.add(key);
    return true;
  }

  /** What says enough is kept as it is; of the others the pages are read, as far as there are calls left. */
  async #keep(
    found: readonly { readonly finding: Finding; readonly tool: string; readonly callId: string }[],
  ): Promise<void> {
    let pages = this.#mayFetch() ? pagesPerRound : 0;
    const kept = await Promise.all(
      found.slice(0, mostSources - this.#read.length).map(async ({ finding, tool, callId }) => {
        const { url, text } = finding;
        if (url === undefined || text.length >= enoughCharacters || pages === 0) return { finding, tool, callId };
        pages -= 1;
        const page = await this.#fetch(url);
        return page === undefined
          ? { finding, tool, callId }
          : { finding: { ...finding, text: page.text }, tool, callId: page.callId };
      }),
    );
    for (const { finding, tool, callId } of kept) {
      const text = finding.text.trim().slice(0, mostSourceCharacters).toWellFormed();
      // A title alone says nothing that could be cited.
      if (text === "") continue;
      const title = finding.title.replaceAll(/\s+/g, " ").slice(0, 300);
      this.#read.push({ number: this.#read.length + 1, title, url: finding.url, text, tool, callId });
    }
  }

  #mayFetch(): boolean {
    return this.#run.context.config.settings.native_tools.includes("fetch");
  }

  async #fetch(url: string): Promise<{ readonly text: string; readonly callId: string } | undefined> {
    this.#tell(`reading ${url}`);
    const page = await this.#call("native://fetch", { url }, `fetch ${new URL(url).host}`);
    if (page === undefined) return undefined;
    const { deps, context } = this.#run;
    const text = await pageText(deps.documents, page, context.signal).catch(() => "");
    return text.trim() === "" ? undefined : { text, callId: page.callId };
  }

  /** Undefined where it failed, which is kept and no reason to end. */
  async #call(
    target: string,
    args: JsonObject,
    name: string,
  ): Promise<{ readonly text: string; readonly mediaType: string; readonly callId: string } | undefined> {
    if (!this.#budget.takeCall()) return undefined;
    const { deps, context, call } = this.#run;
    const { tenant, caller, requestId, traceId, span, sessionId } = context;
    try {
      const { outcome, callId } = await invokeTool(deps, {
        tenant,
        principal: { kind: "known", caller },
        requestId,
        traceId,
        span,
        target,
        arguments: args,
        async: false,
        route,
        parentId: call.id,
        signal: this.#budget.searching,
        ...(sessionId === undefined ? {} : { sessionId }),
      });
      if (outcome.kind === "completed") return { text: outcome.text, mediaType: outcome.mediaType, callId };
      if (outcome.kind === "pending") {
        this.#failed.set(name, {
          code: "approval_required",
          message: `It waits (${outcome.reason}) as call ${callId}.`,
        });
      } else this.#failed.set(name, { code: outcome.code, message: outcome.message });
    } catch (thrown) {
      const { code, message } = toGatewayError(thrown);
      this.#failed.set(name, { code, message });
    }
    return undefined;
  }

  /** Undefined where there is no room or no time for it. @throws GatewayError what refuses the very first question */
  async #ask(messages: readonly JsonObject[], phase: "searching" | "answering"): Promise<string | undefined> {
    const size = Math.ceil(JSON.stringify(messages).length / charactersPerToken);
    if (!this.#budget.mayAsk(size, phase === "answering")) return undefined;
    if (phase === "searching" && this.#budget.cut !== undefined) return undefined;
    const { deps, context, call } = this.#run;
    const signal = phase === "answering" ? this.#budget.answering : this.#budget.searching;
    try {
      const { text, tokens } = await askModelWithUsage(deps, context, {
        model: context.config.settings.deep_search_model,
        messages,
        within: call.id,
        signal,
        route,
      });
      this.#budget.spend(tokens ?? size + Math.ceil(text.length / charactersPerToken));
      return text;
    } catch (thrown) {
      if (signal.aborted) return undefined;
      const error = toGatewayError(thrown);
      // Nothing has been done yet: the caller had better know at once.
      if (this.#budget.modelCalls === 0) throw withDelivery(error, "answered");
      this.#budget.spend(size);
      this.#budget.end(error.code, error.message);
      return undefined;
    }
  }

  async #answer(): Promise<string | undefined> {
    if (this.#read.length === 0) return undefined;
    this.#tell(`answering from ${this.#read.length} sources`);
    return await this.#ask(this.#prompts.answer(this.#asked.question, this.#read), "answering");
  }

  #result(answer: string | undefined): JsonObject {
    const { cut, tokens, calls, modelCalls } = this.#budget;
    const checked = answer === undefined ? undefined : checkCitations(answer, this.#read.length);
    const notes = [
      ...(this.#read.length === 0 ? ["Nothing was found that could be read."] : []),
      ...(this.#read.length > 0 && checked === undefined ? ["There is no answer; 'sources' has what was read."] : []),
      ...(checked !== undefined && checked.cited.length === 0
        ? ["The answer cites no source; do not rely on it."]
        : []),
      ...(checked !== undefined && checked.dropped.length > 0
        ? ["Citations of sources that do not exist were taken out of the answer."]
        : []),
    ];
    const shown = checked === undefined ? this.#read : checked.cited.flatMap((number) => this.#read[number - 1] ?? []);
    return {
      answer: checked?.text ?? null,
      [checked === undefined ? "sources" : "citations"]: shown.map(({ number, title, url, tool, callId, text }) => ({
        number,
        title,
        ...(url === undefined ? {} : { url }),
        tool,
        call_id: callId,
        excerpt: text.slice(0, 200).toWellFormed(),
      })),
      ...(cut === undefined ? {} : { cut: { code: cut.code, message: cut.message, status: catalog[cut.code].http } }),
      ...(notes.length === 0 ? {} : { notes }),
      ...(checked === undefined || checked.dropped.length === 0 ? {} : { dropped_citations: [...checked.dropped] }),
      ...(this.#failed.size === 0
        ? {}
        : {
            failed: [...this.#failed]
              .slice(0, 20)
              .map(([tool, { code, message }]) => ({ tool, code, message: message.slice(0, 300) })),
          }),
      queries: [...this.#queries],
      rounds: this.#rounds,
      sources_read: this.#read.length,
      usage: { tokens, model_calls: modelCalls, tool_calls: calls },
    };
  }

  #tell(message: string): void {
    const { onProgress, redactor } = this.#run.context;
    onProgress?.({
      progress: this.#budget.calls + this.#budget.modelCalls,
      message: redactor.redact(message.slice(0, 500)),
    });
  }
}
