/**
 * What stands behind the gateway in the kill suite: a shop that takes orders over HTTP and a model that
 * orders what it is asked to. The shop honours `Idempotency-Key` where one is sent: the same key is the
 * same effect. It counts what arrived and what took effect, by order.
 */
import { startHttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text } from "../support/llm-stub.ts";

export interface ShopRequest {
  readonly order: string;
  /** Absent: the shop takes every request for a new one. */
  readonly key: string | undefined;
}

export interface Shop {
  readonly url: string;
  readonly modelUrl: string;
  requestsFor(order: string): readonly ShopRequest[];
  /** How often the order was carried out. */
  effectsFor(order: string): number;
  /** What has happened so far does not count. */
  forget(order: string): void;
  /** Runs when a request for the order has arrived and nothing was answered yet. */
  onRequest(order: string, act: () => Promise<void> | void): void;
  /** The same for the model, at its `turn`-th turn about the order. */
  onModelTurn(order: string, turn: number, act: () => Promise<void> | void): void;
  close(): Promise<void>;
}

export const toolName = "place_order";
/** A request that offers it has it called. */
export const clientToolName = "ask_somebody";

export interface ShopOptions {
  /** How long the shop takes for a request. Default 20 ms. */
  readonly workMs?: () => number;
  /** Bytes of small print on every receipt. Default none. */
  readonly termsBytes?: number;
}

export async function startShop({ workMs = () => 20, termsBytes = 0 }: ShopOptions = {}): Promise<Shop> {
  const terms = "§".repeat(termsBytes / 2);
  const requests = new Map<string, ShopRequest[]>();
  const onRequest = new Map<string, () => Promise<void> | void>();
  const onTurn = new Map<string, { readonly turn: number; readonly act: () => Promise<void> | void }>();
  const of = (order: string): readonly ShopRequest[] => requests.get(order) ?? [];
  const effectsFor = (order: string): number => {
    const keys = of(order).map(({ key }, at) => key ?? `without a key ${at}`);
    return new Set(keys).size;
  };

  const counter = await startHttpStub(async ({ method, body, headers }) => {
    const { order } = JSON.parse(body.toString("utf8")) as { order: string };
    // What is put twice is there once.
    const key = method === "PUT" ? order : headers["idempotency-key"]?.toString();
    const known = [...of(order), { order, key }];
    requests.set(order, known);
    await onRequest.get(order)?.();
    return {
      body: JSON.stringify({ receipt: `receipt of ${order}`, request: known.length, terms }),
      delayMs: workMs(),
    };
  });

  const model = await startLlmStub();
  model.respond(async (body) => {
    const messages = body["messages"] as readonly { readonly role: string; readonly content: string }[];
    const order = messages.find(({ role }) => role === "user")?.content ?? "";
    const results = messages.filter(({ role }) => role === "tool").map(({ content }) => content);
    const turn = results.length > 0 ? 2 : 1;
    const watch = onTurn.get(order);
    if (watch?.turn === turn) {
      onTurn.delete(order);
      await watch.act();
    }
    if (turn === 2) return text(`The shop says: ${results.join("; ")}`);
    const orders = order.split(" and ").map((one) => ({ name: toolName, arguments: { order: one } }));
    const offered = (body["tools"] ?? []) as readonly { readonly function: { readonly name: string } }[];
    // A tool of the client's own is called in the same turn.
    const theirs = offered.filter((tool) => tool.function.name === clientToolName);
    return calls(...orders, ...theirs.map(() => ({ name: clientToolName, arguments: {} })));
  });

  return {
    url: counter.url,
    modelUrl: model.url,
    requestsFor: of,
    effectsFor,
    forget: (order) => void requests.delete(order),
    onRequest: (order, act) => void onRequest.set(order, act),
    onModelTurn: (order, turn, act) => void onTurn.set(order, { turn, act }),
    async close() {
      await model.close();
      await counter.close();
    },
  };
}

export type Manners = "honours keys" | "ignores keys" | "takes PUT";

/** The shop as a plugin. With the header, or with PUT, the gateway knows that repeating an order is safe. */
export function orderPlugin(shop: Shop, manners: Manners, sensitive: boolean): Readonly<Record<string, unknown>> {
  return {
    schema_version: "v1",
    name: toolName,
    description: "Orders something.",
    parameters: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
    execution: {
      method: manners === "takes PUT" ? "PUT" : "POST",
      base_url: `${shop.url}/orders`,
      param_placement: "body",
      ...(manners === "honours keys" ? { idempotency_header: "Idempotency-Key" } : {}),
    },
    sensitive,
  };
}
