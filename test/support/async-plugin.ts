/**
 * An asynchronous VCP plugin that does what its arguments say, as plugins in the wild do it: it knows of us only
 * CALLBACK_BASE_URL and its own name. Its desk is where a test hears of it and lets it go on: behind its wall it
 * sees no files of ours.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import type { Json } from "./gateway-client.ts";
import type { TestPlugin } from "./vcp-plugins.ts";

const program = `
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
const order = JSON.parse(readFileSync(0, "utf8") || "{}");
const { CALLBACK_BASE_URL: base, PLUGIN_NAME_FOR_CALLBACK: name } = process.env;
const send = (url, body) => fetch(url, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
});
const call = async ({ id, body }) => (await send(base + "/" + name + "/" + id, body)).status;
if (order.desk) await send(order.desk, { environment: process.env });
for (const early of order.early ?? []) await call(early);
if (order.log) console.log(order.log);
if (order.answer !== undefined) console.log(JSON.stringify(order.answer));
while (order.waits && (await (await fetch(order.desk)).text()) !== "go") await pause(20);
const statuses = [];
for (const late of order.late ?? []) statuses.push(await call(late));
if (order.late) await send(order.desk, { statuses });
if (order.complaint) console.error(order.complaint);
if (order.stays) await pause(order.stays);
process.exit(order.exit ?? 0);
`;

export function asyncPlugin(name: string, manifest: Readonly<Record<string, unknown>> = {}): TestPlugin {
  return {
    name,
    manifest: { pluginType: "asynchronous", entryPoint: { command: "node plugin.mjs" }, ...manifest },
    files: { "plugin.mjs": program },
  };
}

export interface Desk {
  /** Argument `desk` of one run. */
  readonly url: string;
  /** Of the process: what it was started with. */
  environment(): Json;
  /** Of its own callbacks, once it has made them. */
  statuses(): readonly number[] | undefined;
  /** Lets it go on. */
  go(): void;
}

export interface Desks {
  open(): Desk;
  close(): Promise<void>;
}

export async function startDesks(): Promise<Desks> {
  const heard = new Map<string, Json>();
  const going = new Set<string>();
  const hear = async (request: IncomingMessage, path: string): Promise<void> => {
    const said: Json = request.method === "POST" ? JSON.parse(await text(request)) : {};
    heard.set(path, { ...heard.get(path), ...said });
  };
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    void hear(request, path).then(() => response.end(going.has(path) ? "go" : "wait"));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const origin = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  let last = 0;
  return {
    open() {
      const path = `/${(last += 1)}`;
      return {
        url: `${origin}${path}`,
        environment: () => heard.get(path)?.environment ?? {},
        statuses: () => heard.get(path)?.statuses,
        go: () => void going.add(path),
      };
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
