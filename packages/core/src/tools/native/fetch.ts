/**
 * `fetch`: a request to an address that the model chose (CHAT-9). It leaves through the guarded door
 * with nothing of ours in it but the trace: no credential of the tenant is ever added, and what comes
 * back is content from outside.
 */
import * as z from "zod";
import { callHeaders } from "../../blind/execute.ts";
import { isHeaderName, isHeaderValue, isTransportHeader } from "../../blind/header-rules.ts";
import { decodeReply } from "../../blind/reply.ts";
import { parseJson } from "../../json.ts";
import type { ToolReply } from "../tool-call.ts";
import { defineNativeTool, invalidInput, type NativeRun } from "./native-tool.ts";

const maxRedirects = 3;
const mostHeaders = 32;

const input = () =>
  z.strictObject({
    url: z.string().min(1).max(8_192).describe("Address, http or https."),
    method: z.enum(["GET", "POST", "PUT", "PATCH", "DELETE"]).default("GET").describe("All but GET count as writes."),
    headers: z.record(z.string(), z.string()).optional().describe("Request headers by name."),
    body: z.string().optional().describe("Request body; not with GET. JSON is sent as JSON."),
  });
type Input = z.output<ReturnType<typeof input>>;

export const fetchUrl = defineNativeTool({
  name: "fetch",
  className: "FetchTool",
  title: "Fetch URL",
  description: "Fetches the content of a URL over HTTP; also sends POST, PUT, PATCH and DELETE.",
  input,
  effect: "write",
  effectOf: ({ method }) => (method === "GET" ? "read" : "write"),
  repeat: "never",
  outputTrust: "outside",
  outward: true,
  invoke: send,
});

async function send(asked: Input, run: NativeRun): Promise<ToolReply> {
  const { call, context, deps } = run;
  const { settings } = context.config;
  const isRead = asked.method === "GET";
  if (isRead && asked.body !== undefined)
    throw invalidInput("body", "A GET request has no body; leave out 'body' or choose another 'method'.");
  requireAddress(asked.url);
  const given = readHeaders(asked.headers ?? {});
  const response = await deps.egress.request({
    method: asked.method,
    url: asked.url,
    headers: [...given, ...ourHeaders(asked, given), ...callHeaders(undefined, call.id, context.traceId)],
    ...(asked.body === undefined ? {} : { body: asked.body }),
    signal: context.signal,
    timeoutMs: call.uri.options.timeoutMs ?? settings.tool_timeout_ms,
    // A redirected write would be sent to a place that nobody named.
    maxRedirects: isRead ? maxRedirects : 0,
    // Any of them may carry a secret of the conversation.
    sensitiveHeaders: given.map(([name]) => name.toLowerCase()),
    ...(context.onSent === undefined ? {} : { onSent: context.onSent }),
    span: context.span,
  });
  return decodeReply(response, {
    maxBytes: settings.result_max_bytes,
    toolName: call.tool.name,
    redact: (text) => context.redactor.redact(text),
  });
}

/** No permission would help what is no address; which addresses may be reached says the door. */
function requireAddress(text: string): void {
  if (URL.canParse(text)) return;
  throw invalidInput("url", "'url' must be a whole address, like https://example.com/page.");
}

type Header = readonly [name: string, value: string];

function readHeaders(headers: Readonly<Record<string, string>>): readonly Header[] {
  const entries = Object.entries(headers);
  if (entries.length > mostHeaders) throw invalidInput("headers", `At most ${mostHeaders} headers can be sent.`);
  for (const [name, value] of entries) {
    if (!isHeaderName(name))
      throw invalidInput("headers", `${JSON.stringify(name.slice(0, 80))} is not a header name.`);
    if (!isHeaderValue(value))
      throw invalidInput("headers", `The value of header '${name}' holds characters that no header may have.`);
    if (isTransportHeader(name) && name.toLowerCase() !== "content-type") {
      throw invalidInput("headers", `Header '${name}' belongs to the connection and cannot be set.`);
    }
  }
  return entries;
}

function ourHeaders({ body }: Input, given: readonly Header[]): readonly Header[] {
  const has = (name: string): boolean => given.some(([other]) => other.toLowerCase() === name);
  const type =
    body === undefined || has("content-type")
      ? undefined
      : parseJson(body) === undefined
        ? "text/plain; charset=utf-8"
        : "application/json";
  return [
    ...(has("accept") ? [] : [["accept", "*/*"] as const]),
    ...(has("user-agent") ? [] : [["user-agent", "toolyard"] as const]),
    ...(type === undefined ? [] : [["content-type", type] as const]),
  ];
}
