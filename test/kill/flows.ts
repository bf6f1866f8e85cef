/**
 * The ways in which an order reaches the shop, each as an application goes about it, and the table of
 * the kill points that each of them passes.
 */
import type { killPoints } from "@toolyard/core/calls/kill-points";
import type { Json, Reply } from "../support/gateway-client.ts";
import type { Application } from "./application.ts";
import { toolName } from "./shop.ts";

/** What became of the order as the application knows it in the end. */
export interface Told {
  readonly fate: "done" | "unknown" | "something else";
  /** All that was said. */
  readonly text: string;
}

export interface Flow {
  readonly sensitive: boolean;
  /** Happens before the process in question gets to do anything. */
  readonly before?: (application: Application, order: string) => Promise<Json>;
  readonly run: (application: Application, order: string, before: Json) => Promise<Told>;
}

const keyed = (order: string) => () => ({ "idempotency-key": order });

const invokeBody = (order: string) => ({ name: toolName, arguments: { order } });
const chatBody = (order: string) => ({ model: "stub-1", messages: [{ role: "user", content: order }] });

export const flows = {
  /** A whole answer, with a key of the application's own. */
  chat: {
    sensitive: false,
    async run(application, order) {
      const reply = await application.send("post", "/v1/chat/completions", {
        body: chatBody(order),
        headers: keyed(order),
      });
      return toldByModel(reply, order);
    },
  },
  /** A stream, and an SDK that repeats it by itself, without a key. */
  "streamed chat": {
    sensitive: false,
    async run(application, order) {
      const reply = await application.send("post", "/v1/chat/completions", {
        body: { ...chatBody(order), stream: true },
        headers: (attempt) => ({ "x-stainless-retry-count": String(attempt) }),
        isWhole: ({ status, text }) => status !== 200 || text.trimEnd().endsWith("[DONE]"),
      });
      return toldByModel(reply, order);
    },
  },
  "direct call": {
    sensitive: false,
    async run(application, order) {
      const reply = await application.send("post", "/v1/tools/invoke", {
        body: invokeBody(order),
        headers: keyed(order),
      });
      if (reply.status === 200) return told(reply.json.content, order);
      return { fate: reply.json.error.code === "outcome_unknown" ? "unknown" : "something else", text: reply.text };
    },
  },
  "async call": {
    sensitive: false,
    async run(application, order) {
      const reply = await application.send("post", "/v1/tools/invoke", {
        body: { ...invokeBody(order), async: true },
        headers: keyed(order),
      });
      return toldByCall(await application.follow(accepted(reply)), order);
    },
  },
  "approved call": {
    sensitive: true,
    async run(application, order) {
      const reply = await application.send("post", "/v1/tools/invoke", {
        body: invokeBody(order),
        headers: keyed(order),
      });
      return approve(application, accepted(reply), order);
    },
  },
  "approved call of a chat": {
    sensitive: true,
    async run(application, order) {
      const { status, json, text } = await application.send("post", "/v1/chat/completions", {
        body: chatBody(order),
        headers: keyed(order),
      });
      if (status !== 200) return { fate: "something else", text };
      return approve(application, json.tool_execution.pending[0].call_id, order);
    },
  },
  "replayed call": {
    sensitive: false,
    // With a key its end is on record before it is told.
    before: async (application, order) =>
      (
        await application.send("post", "/v1/tools/invoke", {
          body: invokeBody(order),
          headers: keyed(`before-${order}`),
        })
      ).json.id,
    async run(application, order, original) {
      const reply = await application.send("post", `/v1/calls/${original}/replay`, {
        body: { confirm: true },
        headers: keyed(order),
      });
      return toldByCall(await application.follow(accepted(reply)), order);
    },
  },
} as const satisfies Record<string, Flow>;

export type FlowName = keyof typeof flows;
export const flowNames = Object.keys(flows) as readonly FlowName[];

/**
 * What becomes of a write that must not be repeated when the process dies at this point: `done` where
 * it was either certainly not sent or already recorded, else `unknown`.
 */
export type Fate = "done" | "unknown";

const everyChat = (fate: Fate) => ({ chat: fate, "streamed chat": fate }) as const;
/** All that a worker carries out. */
const everyQueued = (fate: Fate) =>
  ({
    "async call": fate,
    "approved call": fate,
    "approved call of a chat": fate,
    "replayed call": fate,
  }) as const;
const everySent = (fate: Fate) => ({ ...everyChat(fate), "direct call": fate, ...everyQueued(fate) }) as const;

/** Every kill point of a call with the flows that pass it; that it is the whole truth is a test of its own. */
export const passes = {
  "chat.admitted": { ...everyChat("done"), "approved call of a chat": "done" },
  "chat.round-recorded": { ...everyChat("unknown"), "approved call of a chat": "done" },
  // Ends are recorded while the model already reads the results; here they are not yet.
  "chat.round-finished": { ...everyChat("unknown"), "approved call of a chat": "done" },
  "chat.before-settle": { ...everyChat("done"), "approved call of a chat": "done" },
  "chat.settled": { ...everyChat("done"), "approved call of a chat": "done" },
  "invoke.recorded": { "direct call": "unknown", "async call": "done", "approved call": "done" },
  "call.before-send": everySent("unknown"),
  "call.sent": everySent("unknown"),
  "call.answered": everySent("unknown"),
  "call.result-stored": everySent("unknown"),
  "call.finished": { ...everyChat("done"), "direct call": "done" },
  "async.recorded": { "async call": "done", "replayed call": "done" },
  "async.queued": { "async call": "done", "replayed call": "done" },
  "worker.received": everyQueued("done"),
  "worker.claimed": everyQueued("unknown"),
  "worker.finished": everyQueued("done"),
  "approval.decided": { "approved call": "done", "approved call of a chat": "done" },
} as const satisfies Record<(typeof killPoints)[number], Partial<Record<FlowName, Fate>>>;

/** Moments that are no points of our code: the other side has the request and has not answered. */
export const outsidePasses = {
  "the shop is at work": everySent("unknown"),
  "the model thinks about the request": { ...everyChat("done"), "approved call of a chat": "done" },
  "the model thinks about the result": everyChat("done"),
} as const satisfies Record<string, Partial<Record<FlowName, Fate>>>;

export type Moment = keyof typeof outsidePasses;

/** The call's id; whoever had to send a request twice may be told of its end instead of its acceptance. */
function accepted({ status, json, text }: Reply): string {
  if (status !== 202 && !(status === 200 && json.object === "call")) throw new Error(`Not accepted: ${status} ${text}`);
  return json.id;
}

async function approve(application: Application, callId: string, order: string): Promise<Told> {
  const reply = await application.send("post", `/v1/calls/${callId}/approve`, { body: {} });
  if (reply.status !== 200) return { fate: "something else", text: reply.text };
  return toldByCall(await application.follow(callId), order);
}

function toldByCall(call: Json, order: string): Told {
  if (call.state === "completed") return told(call.result.preview, order);
  return { fate: call.state === "unknown" ? "unknown" : "something else", text: JSON.stringify(call) };
}

function toldByModel({ status, text }: Reply, order: string): Told {
  if (status === 200 && text.includes("outcome_unknown")) return { fate: "unknown", text };
  return status === 200 ? told(textOf(text), order) : { fate: "something else", text };
}

/** Of an answer or of all the pieces of a stream. */
function textOf(body: string): string {
  if (!body.startsWith("data:")) return JSON.parse(body).choices[0].message.content as string;
  const events = body.split("\n").filter((line) => line.startsWith("data: {"));
  return events.map((line) => JSON.parse(line.slice(6)).choices[0]?.delta?.content ?? "").join("");
}

function told(text: string, order: string): Told {
  return { fate: text.includes(`receipt of ${order}`) ? "done" : "something else", text };
}
