/**
 * The calls of a run's steps. Each is a row like any other, a child of the run, and its identity is the run, the
 * place and the attempt: whoever comes to that place again finds it, and nothing is asked for twice.
 */
import { createHash } from "node:crypto";
import type { Call, CallState, StoredOutcome } from "../../calls/call.ts";
import { stopCall } from "../../calls/cancel.ts";
import { enqueue } from "../../calls/enqueue.ts";
import { holdLease, isLeftToOthers, reasonOf } from "../../calls/lease.ts";
import { errorForRecord, inputOf, newToolCall, refusedCall, sealInput, type CallPlace } from "../../calls/new-call.ts";
import { openResult } from "../../calls/result-store.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { canonicalJson, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import { readAll } from "../../ports/blob-store.ts";
import type { CallFinish, NewCall } from "../../ports/calls.ts";
import { executeCall } from "../../tools/execute-call.ts";
import { prepareCall, type PreparedCall } from "../../tools/prepare.ts";
import { StepFailed } from "./failures.ts";

/** Longer results stay behind their handle. */
const longestResult = 1_048_576;

export interface ChildPlace {
  readonly path: string;
  readonly attempt: number;
}

export interface ChildTarget {
  readonly target: string;
  readonly isUri: boolean;
  readonly arguments: JsonObject;
  readonly timeoutMs?: number | undefined;
}

export interface NewChild {
  readonly prepared: PreparedCall;
  readonly row: NewCall;
  /** Nobody waits for it. */
  readonly isDetached: boolean;
}

export interface ChildCallsOptions {
  readonly run: Call;
  readonly flow: string;
  /** Epoch milliseconds after which this process may be gone. */
  readonly endsAt: number;
}

export class ChildCalls {
  readonly #deps: CoreDeps;
  readonly #context: CallContext;
  readonly #options: ChildCallsOptions;
  readonly #place: CallPlace;

  constructor(deps: CoreDeps, context: CallContext, options: ChildCallsOptions) {
    this.#deps = deps;
    this.#context = context;
    this.#options = options;
    const { run } = options;
    const behind = run.callerChain.filter(({ kind }, at) => at > 0 && kind !== "user");
    this.#place = {
      route: "flows.step",
      parentId: run.id,
      rootId: run.rootId ?? run.id,
      via: [...behind, { kind: "flow", id: options.flow }],
    };
  }

  get place(): CallPlace {
    return this.#place;
  }

  /** @throws StepFailed where it may not be made; with the row of the refused call, for the record */
  async make(
    place: ChildPlace,
    child: ChildTarget,
  ): Promise<NewChild | { readonly refused: NewCall; readonly why: StepFailed }> {
    const { target, isUri, arguments: args } = child;
    const preparation = prepareCall(
      this.#deps.adapters,
      this.#context,
      { target, isUri, arguments: args },
      { hasReadOutside: false },
    );
    if (preparation.kind === "refused") {
      // Steps are on record as calls are.
      const { code, message, details } = errorForRecord(this.#context, preparation.outcome);
      return {
        refused: refusedCall(this.#context, this.#place, preparation, args),
        why: new StepFailed({ code, message, details: { ...details, call_id: preparation.id } }),
      };
    }
    const prepared = this.#limited(preparation.call, child.timeoutMs);
    const isDetached = prepared.uri.options.async === true;
    const expectedMs = prepared.timeoutMs * prepared.maxAttempts;
    const isLater = isDetached || this.#deps.clock.now() + expectedMs > this.#options.endsAt;
    const row = await newToolCall(this.#deps, this.#context, prepared, {
      ...this.#place,
      state: preparation.kind === "needs_approval" ? "input_required" : isLater ? "queued" : "running",
      async: true,
      effectKey: this.#identity(place),
      slots: 1,
      delivery: "none",
    });
    return { prepared, row, isDetached };
  }

  /** A call that is a person's word: it waits for approval, with a form where there is one. */
  async question(
    place: ChildPlace,
    asked: { readonly message: string; readonly form: JsonObject | undefined; readonly step: string },
  ): Promise<NewCall> {
    const target = `flow://${encodeURIComponent(this.#options.flow)}?step=${encodeURIComponent(asked.step)}`;
    const preparation = prepareCall(
      this.#deps.adapters,
      this.#context,
      { target, isUri: true, arguments: {} },
      { hasReadOutside: false, approved: true },
    );
    if (preparation.kind === "refused") {
      throw new StepFailed({ code: preparation.outcome.code, message: preparation.outcome.message });
    }
    const { call } = preparation;
    const requests =
      asked.form === undefined
        ? undefined
        : { form: { method: "elicitation/create", params: { message: asked.message, requestedSchema: asked.form } } };
    const row = await newToolCall(this.#deps, this.#context, call, {
      ...this.#place,
      state: "input_required",
      async: true,
      effectKey: this.#identity(place),
      slots: 0,
      delivery: "none",
    });
    return {
      ...row,
      asks: {
        code: "approval_required",
        message: asked.message,
        details: { step: asked.step, ...(requests === undefined ? {} : { input_requests: requests }) },
      },
      ...(requests === undefined
        ? {}
        : {
            input: await sealInput(this.#deps, this.#context, call.id, {
              ...inputOf(this.#context, call),
              asked: { requests },
            }),
          }),
    };
  }

  /**
   * Carries out a call that is on record and ours. "lost": the call, or the run (`takenOver` is the signal's reason),
   * is another process's by now, which sees to what has not been answered here: where the back end honours keys, it
   * asks again.
   */
  async carryOut(prepared: PreparedCall, signal: AbortSignal): Promise<CallFinish | "lost"> {
    const stopped = new AbortController();
    const stop = (): void => stopped.abort(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
    const row = { tenant: this.#context.tenant, id: prepared.id, attempt: 1 };
    const lease = holdLease(this.#deps, {
      ...row,
      pollCancel: false,
      onEnd: (why) => stopped.abort(reasonOf(why)),
    });
    try {
      const { finish } = await executeCall(this.#deps, prepared, this.#context, { attempt: 1, signal: stopped.signal });
      return isLeftToOthers(stopped.signal, finish) ? "lost" : finish;
    } finally {
      signal.removeEventListener("abort", stop);
      lease.stop();
    }
  }

  async send(callId: string, expectedMs = 0): Promise<void> {
    await enqueue(this.#deps, { tenant: this.#context.tenant, callId, expectedMs });
  }

  async cancel(callIds: readonly string[]): Promise<void> {
    const { tenant } = this.#context;
    await Promise.all(callIds.map((id) => stopCall(this.#deps, tenant, id)));
  }

  /** JSON where it is JSON, else text. Whole numbers that a double cannot hold are the text of their digits. */
  async valueOf(id: string, stored: StoredOutcome | null): Promise<JsonValue> {
    if (stored === null) return null;
    const { text, mediaType, bytes, blobKey } = stored;
    if (blobKey === undefined) return resultOf(text, mediaType);
    if (bytes > longestResult || !isText(mediaType)) return { call_id: id, bytes, media_type: mediaType, head: text };
    const call = { tenant: this.#context.tenant, id, state: "completed" as CallState, outcome: stored };
    const whole = await openResult(this.#deps, this.#context.tenant, call as Call);
    return resultOf(Buffer.from(await readAll(whole.body)).toString("utf8"), mediaType);
  }

  #identity({ path, attempt }: ChildPlace): string {
    const text = canonicalJson({ run: this.#options.run.id, path, attempt });
    return createHash("sha256").update(text).digest("base64url");
  }

  #limited(call: PreparedCall, timeoutMs: number | undefined): PreparedCall {
    if (timeoutMs === undefined) return call;
    const most = Math.max(this.#context.config.settings.tool_timeout_ms, call.tool.timeoutMs ?? 0);
    return { ...call, timeoutMs: Math.min(timeoutMs, most) };
  }
}

function isText(mediaType: string): boolean {
  return mediaType.startsWith("text/") || mediaType.includes("json");
}

/** What a flow has of the text of a result: objects and lists are told from other texts by how they begin. */
export function resultOf(text: string, mediaType: string): JsonValue {
  const looksLike = mediaType.includes("json") || /^\s*[[{]/.test(text);
  if (!looksLike) return text;
  const value = parseJsonExactly(text);
  return value === undefined ? text : value;
}
