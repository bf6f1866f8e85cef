/**
 * What a deployment must do before it is trusted, through its public routes alone. Each check throws where it
 * finds otherwise and returns what is worth saying. They run in order and share one tool.
 */
import { setTimeout as sleep } from "node:timers/promises";
import {
  listAt,
  textAt,
  toValues,
  type Answer,
  type DeploymentClient,
  type StreamRead,
  type Values,
} from "./client.ts";

export interface Subject {
  /** Anybody, without a key. */
  readonly nobody: DeploymentClient;
  /** A key that may do everything in one tenant. */
  readonly tenant: DeploymentClient;
  readonly model: string;
  /** A name that nobody else has. */
  readonly name: string;
  /** What the tool calls: any GET that answers with 2xx. */
  readonly toolUrl: string;
}

export interface Check {
  readonly name: string;
  /** What to look at where it fails. */
  readonly hint: string;
  readonly run: (subject: Subject) => Promise<string>;
}

/** No language model: it calls the tool that it is told to call. */
export const scriptedModel = "toolyard/scripted";
/** A stream that comes in one piece by chance is looked at again; behind a buffering proxy all do. */
const streamAttempts = 3;
const asyncDeadlineMs = 120_000;

export const checks: readonly Check[] = [
  {
    name: "health",
    hint: "GET /health/ready names the part that is red; docs/operate.md says what to do",
    run: health,
  },
  { name: "models", hint: "add a provider (POST /v1/providers) or set OPENAI_API_KEY", run: models },
  { name: "errors", hint: "something in front of the gateway answers in its place", run: errors },
  { name: "register a tool", hint: "the key needs the scope 'manage'", run: registerTool },
  { name: "explain it", hint: "POST /v1/tools/explain", run: explainTool },
  {
    name: "invoke it",
    hint: "the deployment must reach the tool's URL; give one that it reaches with --tool-url, or see TOOLYARD_EGRESS_ALLOW",
    run: invokeTool,
  },
  {
    name: "repeat it",
    hint: "Idempotency-Key does not arrive, or instances do not share the database",
    run: repeatCall,
  },
  {
    name: "asynchronous call",
    hint: "messages are not worked: look at the worker's log, the event source mapping, QUEUE_URL",
    run: callLater,
  },
  {
    name: "streamed chat",
    hint: "a proxy gathers the answer: REST API with responseTransferMode STREAM, or 'proxy_buffering off'",
    run: chat,
  },
  { name: "delete the tool", hint: "DELETE /v1/plugins/{id}", run: deleteTool },
];

function must(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(otherwise);
}

async function health({ nobody }: Subject): Promise<string> {
  const { json } = await nobody.expect("GET", "/health");
  must(json["status"] === "ok", `GET /health says ${JSON.stringify(json)}`);
  const ready = await nobody.send("GET", "/health/ready");
  must(ready.status === 200 && ready.json["status"] === "ok", `not ready: ${JSON.stringify(ready.json)}`);
  const names = listAt(ready.json, "checks").map((check) => textAt(check, "name"));
  return `release ${textAt(json, "version")}; ready: ${names.join(", ")}`;
}

async function models({ tenant, model }: Subject): Promise<string> {
  const { json } = await tenant.expect("GET", "/v1/models");
  const ids = listAt(json, "data").map((entry) => textAt(entry, "id"));
  must(json["object"] === "list" && ids.length > 0, `no models: ${JSON.stringify(json)}`);
  must(ids.includes(model), `'${model}' is not among ${ids.join(", ")}`);
  return `${ids.length}, using ${model}`;
}

function requireErrorShape(answer: Answer, status: number, code: string): void {
  const error = toValues(answer.json["error"]);
  const shown = `${answer.status} ${JSON.stringify(answer.json)}`;
  must(answer.status === status && error["code"] === code, `wanted ${status} ${code}, got ${shown}`);
  must(
    textAt(error, "message") !== "" && textAt(error, "type") !== "" && textAt(error, "request_id") !== "",
    `an error lacks message, type or request_id: ${shown}`,
  );
}

async function errors({ nobody, tenant, name }: Subject): Promise<string> {
  requireErrorShape(await tenant.send("GET", `/v1/no-such-route/${name}`), 404, "not_found");
  requireErrorShape(await tenant.send("GET", `/v1/chat/${name}`), 404, "not_found");
  requireErrorShape(await nobody.withKey("no-key-of-ours").send("GET", "/v1/tools"), 401, "invalid_api_key");
  requireErrorShape(
    await tenant.send("POST", "/v1/tools/invoke", { name: `${name}_missing`, arguments: {} }),
    404,
    "tool_not_found",
  );
  return "404, 401 and an unknown tool, in the one shape";
}

function definition({ name, toolUrl }: Subject): Values {
  return {
    schema_version: "v1",
    name,
    description: "Made by the smoke test; removed at its end.",
    parameters: { type: "object", properties: { probe: { type: "string" } } },
    execution: { method: "GET", base_url: toolUrl, content_type: "application/json", param_placement: "query" },
  };
}

/** The plugin's id, once it is there. */
async function findTool({ tenant, name }: Subject): Promise<string | undefined> {
  const { json } = await tenant.expect("GET", "/v1/plugins?limit=100&order=desc");
  const found = listAt(json, "data").find((plugin) => plugin["name"] === name);
  return found === undefined ? undefined : textAt(found, "id");
}

async function registerTool(subject: Subject): Promise<string> {
  const { json } = await subject.tenant.expect("POST", "/v1/plugins", definition(subject));
  must(textAt(json, "id") !== "", `the plugin has no id: ${JSON.stringify(json)}`);
  return `${subject.name}, which asks ${subject.toolUrl}`;
}

async function explainTool({ tenant, name, toolUrl }: Subject): Promise<string> {
  const { json } = await tenant.expect("POST", "/v1/tools/explain", { name, arguments: { probe: "1" } });
  const request = toValues(json["request"]);
  const url = textAt(request, "url");
  must(
    request["method"] === "GET" && url.startsWith(toolUrl) && url.includes("probe=1"),
    `it would send ${JSON.stringify(request)}`,
  );
  return `GET ${url}`;
}

async function invokeTool({ tenant, name }: Subject): Promise<string> {
  const { json } = await tenant.expect("POST", "/v1/tools/invoke", { name, arguments: { probe: "2" } });
  must(json["status"] === "completed", `the outcome is ${JSON.stringify(json)}`);
  return `${textAt(json, "id")}: ${textAt(json, "content").slice(0, 60)}`;
}

async function repeatCall({ tenant, name }: Subject): Promise<string> {
  const key = { "idempotency-key": `${name}-once` };
  const body = { name, arguments: { probe: "3" } };
  const first = await tenant.expect("POST", "/v1/tools/invoke", body, key);
  const second = await tenant.expect("POST", "/v1/tools/invoke", body, key);
  must(first.json["id"] === second.json["id"], "the same key made two calls");
  must(second.headers.get("idempotent-replayed") === "true", "the second answer does not say that it is a replay");
  const other = await tenant.send("POST", "/v1/tools/invoke", { name, arguments: { probe: "4" } }, key);
  requireErrorShape(other, 422, "idempotency_key_reused");
  return `${textAt(first.json, "id")} twice, another body refused`;
}

async function callLater({ tenant, name }: Subject): Promise<string> {
  const started = performance.now();
  const queued = await tenant.expect("POST", "/v1/tools/invoke", { name, arguments: { probe: "5" }, async: true });
  const id = textAt(queued.json, "id");
  must(
    queued.status === 202 && id !== "",
    `wanted 202 with an id, got ${queued.status} ${JSON.stringify(queued.json)}`,
  );
  for (let state = ""; state !== "completed";) {
    must(performance.now() - started < asyncDeadlineMs, `${id} is still '${state}' after two minutes`);
    await sleep(250);
    const { json } = await tenant.expect("GET", `/v1/calls/${id}`);
    state = textAt(json, "state");
    must(
      ["queued", "running", "completed"].includes(state),
      `${id} ended '${state}': ${JSON.stringify(json["error"])}`,
    );
  }
  return `${id} after ${((performance.now() - started) / 1_000).toFixed(1)} s`;
}

async function chat({ tenant, model, name }: Subject): Promise<string> {
  const ask = { model, stream: true, messages: [{ role: "user", content: `Call ${name} with {"probe": "6"}` }] };
  let reads: readonly StreamRead[] = [];
  for (let attempt = 1; attempt <= streamAttempts && reads.length < 2; attempt += 1) {
    reads = await tenant.stream("/v1/chat/completions", ask);
    const content = readWholeStream(reads.map(({ text }) => text).join(""));
    must(model !== scriptedModel || content.includes(name), `the tool was not called: ${content}`);
  }
  const [first, last] = [reads[0]?.at ?? 0, reads.at(-1)?.at ?? 0];
  must(reads.length >= 2, `${streamAttempts} streams arrived in one piece each`);
  return `${reads.length} pieces, the first after ${first.toFixed(0)} ms, the last after ${last.toFixed(0)} ms`;
}

/** The text of one assistant message: chunks of one id, one end, then `[DONE]`. */
function readWholeStream(text: string): string {
  const frames = text.split("\n\n").filter((frame) => frame.startsWith("data: "));
  const payloads = frames.map((frame) => frame.slice("data: ".length));
  must(payloads.at(-1) === "[DONE]", `the stream does not end with [DONE]: …${text.slice(-200)}`);
  const chunks = payloads.slice(0, -1).map((payload) => toValues(JSON.parse(payload)));
  const ids = new Set(chunks.map((chunk) => chunk["id"]));
  must(
    ids.size === 1 && chunks.every((chunk) => chunk["object"] === "chat.completion.chunk"),
    "chunks of several answers",
  );
  const choices = chunks.flatMap((chunk) => listAt(chunk, "choices"));
  const ends = choices.flatMap((choice) => textAt(choice, "finish_reason") || []);
  must(ends.length === 1, `the stream ends ${ends.length} times: ${ends.join(", ")}`);
  const content = choices.map((choice) => textAt(toValues(choice["delta"]), "content")).join("");
  must(content !== "", "the answer is empty");
  return content;
}

async function deleteTool(subject: Subject): Promise<string> {
  const id = await findTool(subject);
  must(id !== undefined, `${subject.name} is not listed`);
  await subject.tenant.expect("DELETE", `/v1/plugins/${id}`);
  const gone = await subject.tenant.send("POST", "/v1/tools/invoke", { name: subject.name, arguments: {} });
  requireErrorShape(gone, 404, "tool_not_found");
  return `${id}, and it can no longer be called`;
}

/** Whatever became of the checks. */
export async function removeTool(subject: Subject): Promise<void> {
  const id = await findTool(subject);
  if (id !== undefined) await subject.tenant.expect("DELETE", `/v1/plugins/${id}`);
}
