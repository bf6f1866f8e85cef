/** Requests that no tidy client sends, and what may be answered to them. */
import { Agent, request as send, type IncomingHttpHeaders } from "node:http";
import { catalog, isErrorCode } from "@toolyard/core/errors/catalog";
import fc from "fast-check";
import { requireDeclared } from "./declared-answer.ts";
import type { Gateway } from "./gateway.ts";
import type { Json } from "./gateway-client.ts";

export interface Asked {
  readonly method: string;
  /** As it stands on the request line. */
  readonly target: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

export interface Answered {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface RawClient {
  ask(request: Asked): Promise<Answered>;
  /** The same with a JSON body. */
  post(target: string, body: unknown): Promise<Answered>;
  close(): void;
}

export function createRawClient(url: string, key: () => string): RawClient {
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const ask = ({ method, target, headers = {}, body }: Asked): Promise<Answered> =>
    new Promise((resolve, reject) => {
      const length = body === undefined ? 0 : Buffer.byteLength(body);
      const all = { authorization: `Bearer ${key()}`, "content-length": length, ...headers };
      const sent = send(url, { method, path: target, agent, headers: all }, (response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("error", reject);
        response.on("end", () => {
          const text = Buffer.concat(parts).toString("utf8");
          resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
        });
      });
      sent.on("error", reject);
      sent.end(body);
    });
  return {
    ask,
    post: (target, body) =>
      ask({ method: "POST", target, headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
    close: () => agent.destroy(),
  };
}

/** @throws Error where an answer is neither what the route declares nor an error of the catalogue with its status */
export function requireKnown(asked: Pick<Asked, "method" | "target">, { status, headers, text }: Answered): void {
  // "You have it already" is for any answer with a tag.
  if (status === 304) return;
  const isJson = headers["content-type"]?.startsWith("application/json") === true;
  const json: Json = isJson && text !== "" ? JSON.parse(text) : undefined;
  const isDeclared = requireDeclared(asked.method, asked.target, { status, json });
  if (status < 400) return;
  if (isDeclared && json?.error?.code !== "internal_error") return;
  const code: unknown = json?.error?.code;
  const isRpc = json?.jsonrpc === "2.0" && typeof code === "number" && rpcStatuses.get(code) === status;
  const isKnown =
    isRpc ||
    (typeof code === "string" && isErrorCode(code) && code !== "internal_error" && catalog[code].http === status);
  if (!isKnown) {
    throw new Error(`${asked.method} ${asked.target.slice(0, 200)} answered ${status}: ${text.slice(0, 500)}`);
  }
}

/** Errors of JSON-RPC that go with a status of HTTP (docs/mcp-server.md). */
const rpcStatuses: ReadonlyMap<number, number> = new Map([
  [-32_700, 400],
  [-32_600, 400],
  [-32_602, 400],
  [-32_601, 404],
  [-32_020, 400],
  [-32_021, 400],
  [-32_022, 400],
]);

/**
 * Node's own complaints: listeners that pile up, what is deprecated. Not kafkajs's, which counts its timers down below
 * zero, and may do so in a file that had this worker before.
 */
const warnings: string[] = [];
process.on("warning", ({ name, message, stack = "" }) => {
  if (!stack.includes("/node_modules/kafkajs/")) warnings.push(`${name}: ${message}`);
});

/** @throws Error where the gateway has died, or something has surprised it */
export async function requireUnshaken(gateway: Gateway): Promise<void> {
  const { status } = await gateway.nobody.send("get", "/health/live");
  if (status !== 200) throw new Error(`/health/live answered ${status}`);
  const surprise = gateway.logged.find(({ level, fields }) => level === "error" || fields["code"] === "internal_error");
  if (warnings.length > 0) throw new Error(warnings.join("\n"));
  if (surprise !== undefined) throw new Error(`the gateway logged ${JSON.stringify(surprise)}`);
}

export const oddNumbers = [0, -0, -1, 1, 1.5, 1e21, 1e308, -1e308, 2 ** 31, 2 ** 53, 2 ** 63, 5e-324];
export const oddTexts = [
  "",
  " ",
  "\u0000",
  "\ud800",
  "\udfff",
  "😀",
  "北京",
  "\r\nX: 1",
  "a".repeat(300),
  "../..",
  "%00",
  "{{x}}",
  "$&",
  "plg_1",
  "call_1",
  "ten_default",
  "stub-1",
  "lookup",
  "plugin://lookup",
  "2026-01-01T00:00:00Z",
  "http://127.0.0.1:1/",
  "constructor",
  "__proto__",
  "null",
  "true",
];
export const oddValue = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...oddTexts) },
  { weight: 3, arbitrary: fc.constantFrom(...oddNumbers) },
  { weight: 2, arbitrary: fc.constantFrom(null, true, false) },
  { weight: 2, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 40 }) },
);
