/** The OpenAPI document for people (`/docs`) and for language models (`/llms.txt`). One page, no scripts, nothing from elsewhere. */
import { createHash } from "node:crypto";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import type { Content, OpenApiDocument, Operation, ResponseObject } from "./openapi.ts";
import type { Tag } from "./tags.ts";

const style = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --mark: #2563eb; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { margin-bottom: 0; } h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; text-transform: capitalize; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { background: var(--soft); overflow-x: auto; padding: .75rem; border-radius: .4rem; }
nav a { margin-right: .8rem; } a { color: var(--mark); }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; } summary b { display: inline-block; min-width: 4.2rem; color: var(--mark); }
summary span { opacity: .75; margin-left: .6rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-top: 1px solid var(--line); }
`;

/** Allows exactly the style above. */
export const docsPolicy = `default-src 'none'; style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'; base-uri 'none'; frame-ancestors 'none'`;

export function renderDocs(document: OpenApiDocument): string {
  const { info, tags } = document;
  const groups = tags.map((tag) => ({ ...tag, operations: operationsOf(document, tag.name) }));
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escape(info.title)} API</title><style>${style}</style></head>
<body>
<h1>${escape(info.title)} API</h1>
<p>Version ${escape(info.version)}. Machine-readable: <a href="/openapi.json">openapi.json</a>, <a href="/llms.txt">llms.txt</a>.</p>
<p>${inline(info.description)}</p>
<nav>${groups.map(({ name }) => `<a href="#${anchor(name)}">${escape(name)}</a>`).join("")}<a href="#security">security</a></nav>
${groups.map((group) => renderGroup(group, document)).join("\n")}
<h2 id="security">Security</h2>
<p>Report a security problem of this installation to the operator who gave you your key. Operators name another address with the
setting <code>TOOLYARD_SECURITY_CONTACT</code>, which <a href="/.well-known/security.txt">security.txt</a> then shows.</p>
</body>
</html>
`;
}

/** From nothing to a tool that is called, in the order of doing it. */
const firstSteps: readonly (readonly [operationId: string, why: string])[] = [
  ["putCredential", "Store the secret that the back end wants. A definition names it, and never holds it."],
  [
    "createPlugin",
    "Make the tool. `parameters` is JSON Schema 2020-12 and all that models see beside `name` and `description`. " +
      "`execution` says how it is reached: `method`, `base_url` with `{argument}` where a part of the path stands, `content_type`, and in " +
      "`param_placement` (`query`, `body`, `path`) where arguments go. `auth_config` says where credentials go: " +
      "`type` `api_key` (each entry with `source`, `target` and `location` `header`, `query`, `path` or `body`), `bearer`, `basic` or `oauth2`; " +
      "leave it out where there is none.",
  ],
  ["explainTool", "See the exact request that a call would send, secrets masked. Nothing is sent."],
  [
    "invokeTool",
    "Call it. 200 is the result, in `content`. 202 means that it is not done yet: ask `GET /v1/calls/{id}` with the `id` of the answer until `state` is " +
      "`completed`, `failed`, `cancelled`, `rejected` or `unknown`, then `GET /v1/calls/{id}/result`. In the state `input_required` a " +
      "person decides first (`POST /v1/calls/{id}/approve`).",
  ],
  [
    "chatCompletions",
    "Or have a model call it. Without `model` the tenant's default answers; `GET /v1/models` lists what there is.",
  ],
];

export function renderLlmsText(document: OpenApiDocument): string {
  const url = document.servers[0]?.url ?? "";
  const groups = document.tags.map(({ name, description }) => {
    const lines = operationsOf(document, name).map(
      ({ method, path, operation }) => `- \`${method.toUpperCase()} ${path}\`: ${operation.summary}`,
    );
    const about = `${description === undefined ? "" : `${description} `}Schemas and examples: ${url}/openapi.json?tag=${encodeURIComponent(name)}`;
    return `## ${name}\n\n${about}\n\n${lines.join("\n")}`;
  });
  const entries = document.tags.flatMap(({ name }) => operationsOf(document, name));
  const steps = firstSteps.flatMap(([operationId, why]) => {
    const entry = entries.find(({ operation }) => operation.operationId === operationId);
    return entry === undefined ? [] : [toStep(entry, why)];
  });
  return `# ${document.info.title}

> ${document.info.description}

Base URL: ${url}. Any OpenAI client works with \`base_url\` ${url}/v1. Bodies are JSON, with \`Content-Type: application/json\`.
Errors: \`{"error": {"message", "type", "param", "code", "request_id"}}\`; \`message\` says what to do, \`retryable\` whether the same again may help.

- [OpenAPI 3.1](${url}/openapi.json): every route with its schemas and an example. It is long: with \`?tag=\` it is one of the groups below.
- [Documentation](${url}/docs): the same for people

## Make a tool and call it

${steps.map((step, at) => `${at + 1}. ${step}`).join("\n\n")}

${groups.join("\n\n")}
`;
}

function toStep({ method, path, operation }: Entry, why: string): string {
  const { example } = operation.requestBody?.content["application/json"] ?? {};
  return `\`${method.toUpperCase()} ${path}\`: ${why}\n\n   \`\`\`json\n   ${JSON.stringify(example)}\n   \`\`\``;
}

interface Entry {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
}

function operationsOf(document: OpenApiDocument, tag: string): Entry[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, operation]) => operation.tags[0] === tag)
      .map(([method, operation]) => ({ method, path, operation })),
  );
}

interface Group extends Partial<Tag> {
  readonly name: string;
  readonly operations: readonly Entry[];
}

function renderGroup({ name, description, operations }: Group, document: OpenApiDocument): string {
  const about = description === undefined ? "" : `<p>${inline(description)}</p>\n`;
  return `<h2 id="${anchor(name)}">${escape(name)}</h2>\n${about}${operations.map((entry) => renderEntry(entry, document)).join("\n")}`;
}

function renderEntry({ method, path, operation }: Entry, document: OpenApiDocument): string {
  const { summary, description, parameters = [], requestBody, responses } = operation;
  const rows = parameters.map(
    (parameter) =>
      `<tr><td><code>${escape(parameter.name)}</code></td><td>${parameter.in}${parameter.required ? ", required" : ""}</td><td>${escape(describeType(parameter.schema))}</td><td>${inline(parameter.description ?? "")}</td></tr>`,
  );
  const parts = [
    description === undefined
      ? ""
      : description
          .split("\n\n")
          .map((part) => `<p>${inline(part)}</p>`)
          .join(""),
    rows.length === 0
      ? ""
      : `<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>${rows.join("")}</table>`,
    requestBody === undefined
      ? ""
      : `<h4>Request body${requestBody.required ? "" : " (optional)"}</h4>${renderContent(requestBody.content, document)}`,
    ...Object.entries(responses).map(([status, response]) => renderResponse(status, response, document)),
  ];
  return `<details id="${escape(operation.operationId)}"><summary><b>${method.toUpperCase()}</b><code>${escape(path)}</code><span>${escape(summary)}</span></summary>${parts.join("")}</details>`;
}

function renderResponse(status: string, response: ResponseObject, document: OpenApiDocument): string {
  if (response.$ref !== undefined) return `<h4>${escape(status)}</h4><p>An error body.</p>`;
  return `<h4>${escape(status)}: ${escape(response.description ?? "")}</h4>${renderContent(response.content ?? {}, document)}`;
}

function renderContent(content: Content, document: OpenApiDocument): string {
  return Object.entries(content)
    .map(
      ([mediaType, { schema, example }]) =>
        `<p><code>${escape(mediaType)}</code></p><pre>${escape(outline(schema, { document, indent: "", inside: [] }))}</pre>${renderExample(example)}`,
    )
    .join("");
}

function renderExample(example: unknown): string {
  if (example === undefined) return "";
  return `<p>For example:</p><pre>${escape(typeof example === "string" ? example : JSON.stringify(example, null, 2))}</pre>`;
}

/** Levels that an outline goes down; what lies deeper is in openapi.json. */
const deepest = 4;

interface Place {
  readonly document: OpenApiDocument;
  readonly indent: string;
  /** Components being outlined around this place: one that holds itself is named instead of opened again. */
  readonly inside: readonly string[];
}

/** A schema as people write it down: one line per field. */
function outline(schema: JsonValue, { document, indent, inside }: Place): string {
  const component = componentOf(schema);
  if (component !== undefined) {
    if (inside.includes(component)) return component;
    const { schemas } = document.components;
    const target = isJsonObject(schemas) ? schemas[component] : undefined;
    return outline(target ?? {}, { document, indent, inside: [...inside, component] });
  }
  if (!isJsonObject(schema)) return "any";
  const { contentSchema } = schema;
  if (contentSchema !== undefined) return outline(contentSchema, { document, indent, inside });
  if (indent.length / 2 >= deepest) return describeType(schema);
  const { properties, items, required } = schema;
  if (isJsonObject(properties)) {
    const deeper = { document, indent: `${indent}  `, inside };
    const names = Array.isArray(required) ? required : [];
    const lines = Object.entries(properties).map(([name, field]) => {
      const note =
        isJsonObject(field) && typeof field["description"] === "string" ? `  // ${field["description"]}` : "";
      return `${deeper.indent}${name}${names.includes(name) ? "" : "?"}: ${outline(field, deeper)}${note}`;
    });
    return lines.length === 0 ? "{}" : `{\n${lines.join("\n")}\n${indent}}`;
  }
  if (items !== undefined) return `${outline(items, { document, indent, inside })}[]`;
  const branches = schema["anyOf"] ?? schema["oneOf"];
  if (Array.isArray(branches))
    return branches.map((branch) => outline(branch, { document, indent, inside })).join(" | ");
  return describeType(schema);
}

function componentOf(schema: JsonValue): string | undefined {
  const reference = isJsonObject(schema) ? schema["$ref"] : undefined;
  return typeof reference === "string" ? reference.replace("#/components/schemas/", "") : undefined;
}

function describeType(schema: JsonObject): string {
  const { type, const: only, enum: values, format } = schema;
  if (only !== undefined) return JSON.stringify(only);
  if (Array.isArray(values)) return values.map((value) => JSON.stringify(value)).join(" | ");
  const name = Array.isArray(type)
    ? type.filter((part) => typeof part === "string").join(" | ")
    : typeof type === "string"
      ? type
      : "any";
  const bounds = ["minimum", "maximum", "minLength", "maxLength", "default"].flatMap((key) => {
    const value = schema[key];
    return value === undefined || value === Number.MAX_SAFE_INTEGER ? [] : [`${key} ${JSON.stringify(value)}`];
  });
  const extra = [...(typeof format === "string" ? [format] : []), ...bounds];
  return extra.length === 0 ? name : `${name} (${extra.join(", ")})`;
}

/** A tag as the place of a page: no tag is called like an operation. */
function anchor(tag: string): string {
  return `tag-${tag.replaceAll(/\W+/g, "-")}`;
}

/** Text with `code` in backticks. */
function inline(text: string): string {
  return escape(text).replaceAll(/`([^`]*)`/g, (_whole, code: string) => `<code>${code}</code>`);
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
