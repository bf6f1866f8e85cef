/**
 * A back end made from an OpenAPI 3.0 document: it knows the document's routes, holds each request
 * against what its operation declares, and answers with the document's own examples.
 */
import { Validator, type Schema } from "@cfworker/json-schema";
import type { Json } from "./gateway-client.ts";
import { startHttpStub, type HttpStub, type RecordedRequest, type StubReply } from "./http-stub.ts";

export interface OpenApiStub extends HttpStub {
  /** What requests had that their operation does not declare, or lacked. */
  readonly complaints: string[];
  /** What the document says that an operation answers. */
  replyOf(method: string, path: string): StubReply;
}

interface Route {
  readonly method: string;
  readonly path: string;
  readonly pattern: RegExp;
  readonly item: Json;
  readonly operation: Json;
}

export async function startOpenApiStub(document: Json): Promise<OpenApiStub> {
  const complaints: string[] = [];
  const routes = routesOf(document);
  const follow = (value: Json): Json => followIn(document, value);
  const stub = await startHttpStub((request) => {
    const route = findRoute(routes, request);
    if (route === undefined) {
      complaints.push(`${request.method} ${request.target} is no route of the document`);
      return { status: 404 };
    }
    complaints.push(...complaintsAbout(request, route, follow));
    return toReply(route.operation, follow);
  });
  return Object.assign(stub, {
    complaints,
    replyOf: (method: string, path: string) => {
      const route = routes.find((each) => each.method === method && each.path === path);
      return toReply(route?.operation ?? {}, follow);
    },
  });
}

function routesOf(document: Json): readonly Route[] {
  const routes: Route[] = [];
  for (const [path, item] of Object.entries<Json>(document.paths)) {
    for (const method of ["get", "put", "post", "delete", "patch"]) {
      const operation = item[method];
      if (operation === undefined) continue;
      const literal = path.replaceAll(/[.*+?^$()|[\]\\]/g, "\\$&").replaceAll(/\{[^}]+\}/g, "([^/]+)");
      routes.push({ method: method.toUpperCase(), path, pattern: new RegExp(`^${literal}$`), item, operation });
    }
  }
  // Literal segments come before placeholders.
  return routes.sort((a, b) => a.path.split("{").length - b.path.split("{").length);
}

function findRoute(routes: readonly Route[], { method, target }: RecordedRequest): Route | undefined {
  const path = target.split("?", 1)[0] ?? "";
  return routes.find((route) => route.method === method && route.pattern.test(path));
}

function followIn(document: Json, value: Json): Json {
  let at = value;
  while (typeof at?.$ref === "string") {
    at = (at.$ref as string)
      .slice(2)
      .split("/")
      .reduce((owner: Json, key) => owner[key.replaceAll("~1", "/").replaceAll("~0", "~")], document);
  }
  return at;
}

function complaintsAbout(
  request: RecordedRequest,
  { item, operation }: Route,
  follow: (value: Json) => Json,
): readonly string[] {
  const found: string[] = [];
  const place = `${request.method} ${request.target}`;
  const declared = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(follow);
  const query = new URL(request.target, "http://stub").searchParams;
  for (const name of query.keys()) {
    if (!declared.some((each) => each.in === "query" && each.name === name))
      found.push(`${place}: query '${name}' is not declared`);
  }
  for (const { name, required, in: where, schema } of declared.filter((each) => each.in === "query")) {
    if (required === true && !query.has(name)) found.push(`${place}: ${where} '${name}' is missing`);
    const [value] = query.getAll(name);
    const { type } = follow(schema);
    if (value !== undefined && type === "integer" && !/^-?\d+$/.test(value))
      found.push(`${place}: '${name}' is no integer`);
  }
  return [...found, ...bodyComplaints(request, follow(operation.requestBody ?? {}), place)];
}

function bodyComplaints({ headers, body }: RecordedRequest, declared: Json, place: string): readonly string[] {
  const type = String(headers["content-type"] ?? "").split(";")[0] ?? "";
  if (body.length === 0) return declared.required === true ? [`${place}: the body is missing`] : [];
  const media = declared.content?.[type];
  if (media === undefined) return [`${place}: the body is '${type}', which is not declared`];
  const source = JSON.stringify(media.schema);
  if (type !== "application/json" || source.includes('"$ref"') || source.includes('"nullable"')) return [];
  const { valid, errors } = new Validator(media.schema as Schema, "2020-12").validate(
    JSON.parse(body.toString("utf8")),
  );
  return valid ? [] : [`${place}: ${JSON.stringify(errors)}`];
}

function toReply(operation: Json, follow: (value: Json) => Json): StubReply {
  const [status = "200", declared = {}] =
    Object.entries<Json>(operation.responses ?? {}).find(([code]) => code.startsWith("2")) ?? [];
  const content = Object.entries<Json>(follow(declared).content ?? {});
  const [type = "application/json", media = {}] = content[0] ?? [];
  const [example] = Object.values<Json>(media.examples ?? {});
  const value = media.example ?? follow(example ?? {})?.value ?? { generated: true };
  if (content.length === 0) return { status: Number(status), body: "" };
  return {
    status: Number(status),
    headers: { "content-type": type },
    body: typeof value === "string" ? value : JSON.stringify(value),
  };
}

/** A value that a JSON Schema takes: what is required, and the first of what else there is. */
export function generate(schema: Json, depth = 0): Json {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.anyOf !== undefined) return generate(schema.anyOf[0], depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "object" || schema.properties !== undefined) return generateObject(schema, depth);
  if (type === "array")
    return Array.from({ length: Math.max(1, schema.minItems ?? 0) }, () => generate(schema.items ?? {}, depth + 1));
  if (type === "integer" || type === "number") return Math.max(1, schema.minimum ?? 1);
  if (type === "boolean") return true;
  return generateText(schema);
}

function generateObject(schema: Json, depth: number): Json {
  const names = new Set<string>([
    ...(schema.required ?? []),
    ...Object.keys(schema.properties ?? {}).slice(0, depth === 0 ? 6 : 0),
  ]);
  return Object.fromEntries([...names].map((name) => [name, generate(schema.properties?.[name] ?? {}, depth + 1)]));
}

function generateText({ format, pattern, minLength = 0 }: Json): string {
  if (format === "date-time") return "2026-11-28T00:00:00Z";
  if (format === "date") return "2026-11-28";
  if (format === "uri") return "https://example.com/";
  if (format === "binary") return Buffer.from([0, 1, 254, 255]).toString("base64");
  return pattern === undefined ? `text${"x".repeat(Math.max(0, minLength - 4))}` : "abc123";
}
