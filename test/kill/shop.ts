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
  onRequest(order: string, then: () => Promise<void> | void): void;
  /** The same for the model, at its `turn`-th turn about the order. */
  onModelTurn(order: string, turn: number, then: () => void): void;
  close(): Promise<void>;
}

export const toolName = "place_order";

export interface ShopOptions {
  /** How long the shop takes for a request. Default 20 ms. */
  readonly workMs?: () => number;
}

export async function startShop({ workMs = () => 20 }: ShopOptions = {}): Promise<Shop> {
  const requests = new Map<string, ShopRequest[]>();
  const onRequest = new Map<string, () => Promise<void> | void>();
  const onTurn = new Map<string, { readonly turn: number; readonly then: () => void }>();
  const of = (order: string): readonly ShopRequest[] => requests.get(order) ?? [];
  const effectsFor = (order: string): number => {
    const keys = of(order).map(({ key }, at) => key ?? `without a key ${at}`);
    return new Set(keys).size;
  };

  const counter = await startHttpStub(async ({ body, headers }) => {
    const { order } = JSON.parse(body.toString("utf8")) as { order: string };
    const key = headers["idempotency-key"]?.toString();
    const known = [...of(order), { order, key }];
    requests.set(order, known);
    await onRequest.get(order)?.();
    return {
      body: JSON.stringify({ receipt: `receipt of ${order}`, request: known.length }),
      delayMs: workMs(),
    };
  });

  const model = await startLlmStub();
  model.respond((body) => {
    const messages = body["messages"] as readonly { readonly role: string; readonly content: string }[];
    const order = messages.find(({ role }) => role === "user")?.content ?? "";
    const last = messages.at(-1);
    const turn = last?.role === "tool" ? 2 : 1;
    const watch = onTurn.get(order);
    if (watch?.turn === turn) {
      onTurn.delete(order);
      watch.then();
    }
    if (turn === 2) return text(`The shop says: ${last?.content ?? ""}`);
    return calls({ name: toolName, arguments: { order } });
  });

  return {
    url: counter.url,
    modelUrl: model.url,
    requestsFor: of,
    effectsFor,
    forget: (order) => void requests.delete(order),
    onRequest: (order, then) => void onRequest.set(order, then),
    onModelTurn: (order, turn, then) => void onTurn.set(order, { turn, then }),
    async close() {
      await model.close();
      await counter.close();
    },
  };
}

export type Manners = "honours keys" | "ignores keys";

/** The shop as a plugin: with the header, the gateway knows that repeating an order is safe. */
export function orderPlugin(shop: Shop, manners: Manners, sensitive: boolean): Readonly<Record<string, unknown>> {
  return {
    schema_version: "v1",
    name: toolName,
    description: "Orders something.",
    parameters: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
    execution: {
      method: "POST",
      base_url: `${shop.url}/orders`,
      param_placement: "body",
      ...(manners === "honours keys" ? { idempotency_header: "Idempotency-Key" } : {}),
    },
    sensitive,
  };
}
