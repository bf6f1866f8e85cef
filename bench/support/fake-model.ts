/**
 * A model back end that costs next to nothing, as a process: `node fake-model.ts <port>`. The name of the
 * model says how it answers, so that it survives any gateway:
 * `plain`: a whole answer of about 1 KB. `stream/<chunks>/<a second>`: chunks at that pace, each with the
 * time at which it was sent. `tool`: calls `bench_tool` once, then answers. `GET /tool` is that tool.
 */
import { createServer, type ServerResponse } from "node:http";

const [port = "0"] = process.argv.slice(2);
const head = { id: "chatcmpl-bench", created: 1_700_000_000, model: "bench" };
const usage = { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 };

function whole(message: object, finishReason: string): Buffer {
  const choices = [{ index: 0, message: { role: "assistant", ...message }, finish_reason: finishReason }];
  return Buffer.from(JSON.stringify({ ...head, object: "chat.completion", choices, usage }));
}

function chunk(delta: object, finishReason: string | null): string {
  const choices = [{ index: 0, delta, finish_reason: finishReason }];
  return `data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices })}\n\n`;
}

const plain = whole({ content: "x".repeat(800) }, "stop");
const calling = whole(
  {
    content: null,
    tool_calls: [{ id: "call_1", type: "function", function: { name: "bench_tool", arguments: `{"city":"Paris"}` } }],
  },
  "tool_calls",
);
const toolResult = Buffer.from(`{"temperature":21,"unit":"celsius"}`);
const end = `${chunk({}, "stop")}data: [DONE]\n\n`;

function sendWhole(response: ServerResponse, body: Buffer): void {
  response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}

function sendStream(response: ServerResponse, chunks: number, perSecond: number): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  let left = chunks;
  const next = (): void => {
    if (left === 0) {
      clearInterval(pace);
      response.end(end);
      return;
    }
    left -= 1;
    response.write(chunk({ content: `@${process.hrtime.bigint() / 1_000n}@ ` }, null));
  };
  const pace = setInterval(next, 1_000 / perSecond);
  response.on("close", () => clearInterval(pace));
  next();
}

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const parts: Buffer[] = [];
  request.on("data", (part: Buffer) => parts.push(part));
  request.on("end", () => {
    if (request.method === "GET") {
      sendWhole(response, toolResult);
      return;
    }
    const body = Buffer.concat(parts).toString("latin1");
    const [kind, chunks, perSecond] = (/"model":"([^"]*)"/.exec(body)?.[1] ?? "").split("/");
    if (kind === "stream") sendStream(response, Number(chunks), Number(perSecond));
    else sendWhole(response, kind === "tool" && !body.includes(`"role":"tool"`) ? calling : plain);
  });
});
server.listen(Number(port), "127.0.0.1", 4_096);
