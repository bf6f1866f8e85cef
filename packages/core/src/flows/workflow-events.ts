/**
 * A run as the events of workflows (native tools specification, "推理面": `tool_thinking`, `tool_start`, `tool_result`,
 * `message_chunk`, `done`, `error`; FLOWRUN-1). Each carries the trace and the run; ids are those of the run's own
 * events, so whoever was cut off goes on behind the last one, on any instance.
 */
import * as z from "zod";
import type { Call } from "../calls/call.ts";
import { catalog } from "../errors/catalog.ts";
import { isJsonObject, jsonOrText, type JsonValue } from "../json.ts";
import type { FlowBody, FlowDefinition, FlowNode } from "./definition.ts";
import type { RunEvent } from "./run/follow.ts";

const place = {
  trace_id: z.string(),
  run_id: z.string(),
  step: z.string().meta({ description: "Place in the run.", example: "orders[3]/notify" }),
  node: z.string(),
  kind: z.string(),
};
const errorSchema = z.looseObject({ code: z.string(), message: z.string() });

/** The `data` of each event; its name is in `event:` and in `type`. */
export const workflowEventSchema = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("tool_thinking"),
    ...place,
    state: z.string(),
    message: z.string().meta({ description: "What the node says it is for." }),
    error: errorSchema.optional(),
  }),
  z.strictObject({
    type: z.literal("tool_start"),
    ...place,
    tool: z.string().meta({ description: "Address or name of what is called." }),
    call_id: z.string().nullable(),
  }),
  z.strictObject({
    type: z.literal("tool_result"),
    ...place,
    tool: z.string(),
    call_id: z.string().nullable(),
    success: z.boolean(),
    result: z.json().optional(),
    truncated: z.boolean().optional().meta({ description: "The whole is at `GET /v1/calls/{call_id}/result`." }),
    error: errorSchema.optional(),
  }),
  z.strictObject({
    type: z.literal("message_chunk"),
    ...place,
    attempt: z.int(),
    offset: z.int().meta({ description: "Characters of this attempt's answer before it; 0 begins anew." }),
    text: z.string(),
  }),
  z.strictObject({
    type: z.literal("done"),
    trace_id: z.string(),
    run_id: z.string(),
    output: z.json().optional(),
    truncated: z.boolean().optional().meta({ description: "The whole is at `GET /v1/calls/{run_id}/result`." }),
  }),
  z.strictObject({
    type: z.literal("error"),
    trace_id: z.string(),
    run_id: z.string(),
    state: z.string(),
    error: z.looseObject({ code: z.string(), message: z.string(), type: z.string() }),
  }),
]);
type WorkflowEvent = z.output<typeof workflowEventSchema>;

/** Nodes that call something: their begin and end are those of a tool. */
const callingKinds: ReadonlySet<string> = new Set(["tool", "flow", "agent"]);
/** Characters of a result in its event. */
const longestResult = 32_768;

/** From events of a run to the text of an event stream, for one reader. */
export class WorkflowEncoder {
  readonly #ids: { readonly trace_id: string; readonly run_id: string };
  readonly #nodes = new Map<string, FlowNode>();
  /** Characters that the reader has of each step's answer. */
  readonly #told = new Map<string, { readonly attempt: number; readonly length: number }>();

  /** @param definition undefined where it is no longer there */
  constructor({ id, traceId }: Pick<Call, "id" | "traceId">, definition: FlowDefinition | undefined) {
    this.#ids = { trace_id: traceId, run_id: id };
    if (definition !== undefined) this.#learn(definition);
  }

  /** The text of each; a step that began and ended at once is two of one id, which have to come together. */
  encode(events: readonly RunEvent[]): readonly string[] {
    const told = events.flatMap((event) => this.#toWorkflow(event).map((data) => ({ id: event.id, data })));
    return told.map(({ id, data }, at) => {
      // Whoever has the id has all that belongs to it.
      const idLine = told[at + 1]?.id === id ? "" : `id: ${id}\n`;
      return `event: ${data.type}\n${idLine}data: ${JSON.stringify(data)}\n\n`;
    });
  }

  #learn({ nodes }: FlowBody): void {
    for (const [id, node] of Object.entries(nodes)) {
      this.#nodes.set(id, node);
      if (node.kind === "map") this.#learn(node.body);
      if (node.kind === "parallel") Object.values(node.branches).forEach((body) => this.#learn(body));
    }
  }

  #toWorkflow(event: RunEvent): readonly WorkflowEvent[] {
    if (event.type === "run-ended") return [this.#ending(event.call)];
    const { path, node, kind, state, callId } = event;
    const about = { ...this.#ids, step: path, node, kind };
    const isCalling = callingKinds.has(kind);
    const message = this.#nodes.get(node)?.description ?? "";
    const thinking: WorkflowEvent = { type: "tool_thinking", ...about, state, message };
    const tool = { ...about, tool: this.#toolOf(node), call_id: callId };
    switch (event.type) {
      case "step-started": {
        const begun = { ...thinking, state: "running" };
        return isCalling ? [begun, { type: "tool_start", ...tool }] : [begun];
      }
      case "step-waiting":
        return [thinking];
      case "step-text":
        return this.#chunk(about, event, event.text);
      case "step-ended": {
        const { output, error } = event;
        const failure = error === null ? {} : { error: { code: error.code, message: error.message } };
        if (isCalling) {
          const result = error === null ? shown("result", output) : {};
          return [{ type: "tool_result", ...tool, success: error === null, ...result, ...failure }];
        }
        if (error !== null) return [{ ...thinking, ...failure }];
        return kind === "model" ? this.#rest(about, event, output) : [];
      }
      default:
        return event satisfies never;
    }
  }

  /** Of an answer that is followed, what was not told yet. */
  #rest(
    about: StepPlace,
    event: RunEvent & { readonly type: "step-ended" },
    output: JsonValue,
  ): readonly WorkflowEvent[] {
    const node = this.#nodes.get(event.node);
    const text = isJsonObject(output) ? output["text"] : undefined;
    return node?.kind === "model" && node.stream && typeof text === "string" ? this.#chunk(about, event, text) : [];
  }

  #chunk(
    about: StepPlace,
    { path, attempt }: { readonly path: string; readonly attempt: number },
    whole: string,
  ): readonly WorkflowEvent[] {
    const told = this.#told.get(path);
    const offset = told?.attempt === attempt ? told.length : 0;
    this.#told.set(path, { attempt, length: whole.length });
    const text = whole.slice(offset);
    return text === "" ? [] : [{ type: "message_chunk", ...about, attempt, offset, text }];
  }

  #toolOf(id: string): string {
    const node = this.#nodes.get(id);
    if (node?.kind === "tool") return typeof node.uri === "string" ? node.uri : (node.name ?? id);
    if (node?.kind === "flow") return `flow://${node.name}`;
    return node?.kind === "agent" ? `agent://${node.agent}` : id;
  }

  #ending({ state, outcome, error }: Call): WorkflowEvent {
    if (state === "completed") {
      const isWhole = outcome !== null && outcome.blobKey === undefined;
      const output = isWhole ? jsonOrText(outcome.text) : null;
      return { type: "done", ...this.#ids, ...(isWhole ? { output } : { truncated: true }) };
    }
    const { code, message } = error ?? { code: "internal_error" as const, message: `The run is '${state}'.` };
    const details = isJsonObject(error?.details) ? error.details : {};
    return { type: "error", ...this.#ids, state, error: { ...details, code, message, type: catalog[code].type } };
  }
}

interface StepPlace {
  readonly trace_id: string;
  readonly run_id: string;
  readonly step: string;
  readonly node: string;
  readonly kind: string;
}

function shown(name: "result", value: JsonValue): { readonly result?: JsonValue; readonly truncated?: boolean } {
  return JSON.stringify(value).length <= longestResult ? { [name]: value } : { truncated: true };
}
