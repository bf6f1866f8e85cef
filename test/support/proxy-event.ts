/** A request as API Gateway's REST API gives it to a function: a proxy event, payload version 1. */
import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";

/** Bodies of any type are passed on as bytes (every media type counts as binary). */
export function toProxyEvent(request: IncomingMessage, body: Buffer): object {
  const { pathname, searchParams } = new URL(request.url ?? "/", "https://localhost");
  const headers = { "X-Forwarded-Proto": ["https"], "X-Amzn-Trace-Id": [`Root=1-${randomUUID()}`], ...many(request) };
  const query = Object.fromEntries([...searchParams.keys()].map((name) => [name, searchParams.getAll(name)]));
  return {
    resource: "/{proxy+}",
    path: decodeURI(pathname),
    httpMethod: request.method ?? "GET",
    headers: last(headers),
    multiValueHeaders: headers,
    queryStringParameters: searchParams.size === 0 ? null : last(query),
    multiValueQueryStringParameters: searchParams.size === 0 ? null : query,
    pathParameters: { proxy: pathname.slice(1) },
    stageVariables: null,
    requestContext: {
      stage: "live",
      path: pathname,
      protocol: "HTTP/1.1",
      domainName: request.headers.host,
      requestId: randomUUID(),
      identity: { sourceIp: "127.0.0.1", userAgent: request.headers["user-agent"] ?? null },
    },
    body: body.length === 0 ? null : body.toString("base64"),
    isBase64Encoded: body.length > 0,
  };
}

function many({ rawHeaders }: IncomingMessage): Record<string, string[]> {
  const headers: Record<string, string[]> = {};
  for (let at = 0; at < rawHeaders.length; at += 2) {
    (headers[rawHeaders[at] ?? ""] ??= []).push(rawHeaders[at + 1] ?? "");
  }
  return headers;
}

function last(lists: Readonly<Record<string, readonly string[]>>): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(lists).map(([name, values]) => [name, values.at(-1)]));
}

export async function readRequest(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
