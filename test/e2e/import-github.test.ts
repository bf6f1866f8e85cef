/** GitHub's own document, as GitHub publishes it: 13 MB, every operation a tool, called at a back end made from it. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { registerPlugin } from "@toolyard/core/blind/register";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { generate, startOpenApiStub, type OpenApiStub } from "../support/openapi-stub.ts";
import { verifies } from "../support/verifies.ts";

const file = fileURLToPath(import.meta.resolve("@octokit/openapi/generated/api.github.com.json"));

let gateway: Gateway;
let backEnd: OpenApiStub;
let docs: HttpStub;
let tenant: TestTenant;
let document: Json;
let imported: Json;

beforeAll(async () => {
  gateway = await startGateway();
  document = JSON.parse(await readFile(file, "utf8"));
  backEnd = await startOpenApiStub(document);
  // One back end stands in for both of GitHub's.
  const served = JSON.stringify({ ...document, servers: [{ url: backEnd.url }] }).replaceAll(
    "https://uploads.github.com",
    backEnd.url,
  );
  docs = await startHttpStub(() => ({ body: served }));
  tenant = await gateway.newTenant();
  imported = await importing();
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
  await docs.close();
});

const importing = (more: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/plugins/import", { url: `${docs.url}/github.json`, allowed_origins: [backEnd.url], ...more });

/** Where a schema still refers to another one. */
function referencesIn(schema: Json, path = ""): string[] {
  if (typeof schema !== "object" || schema === null) return [];
  const maps = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
  return Object.entries<Json>(schema).flatMap(([key, part]) => {
    if (key === "$ref" || key === "$dynamicRef") return [`${path}/${key}`];
    if (["enum", "const", "default"].includes(key)) return [];
    return maps.includes(key)
      ? Object.entries<Json>(part).flatMap(([name, inner]) => referencesIn(inner, `${path}/${key}/${name}`))
      : referencesIn(part, `${path}/${key}`);
  });
}

describe(`GitHub's document ${verifies("BLIND-1", "BLIND-4")}`, () => {
  test("becomes a tool for every operation", () => {
    const methods = ["get", "put", "post", "delete", "patch"];
    const operations = Object.values<Json>(document.paths).flatMap((item) =>
      methods.filter((method) => item[method] !== undefined),
    );
    expect(operations.length).toBeGreaterThan(1_000);
    expect(imported.diff.added).toHaveLength(operations.length);
    expect(imported.operations.filter(({ action }: Json) => action !== "added")).toEqual([]);
    expect(new Set(imported.diff.added).size).toBe(operations.length);
  });

  test("has names that models take, and no reference in any schema", () => {
    for (const { name, definition } of imported.operations) {
      expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
      expect({ name, left: referencesIn(definition.parameters) }).toEqual({ name, left: [] });
    }
  });

  test("gives definitions that register again as the same", () => {
    for (const { definition, hash } of imported.operations) {
      expect(registerPlugin(definition, { egress: { checkUrl: () => undefined } }).hash).toBe(hash);
    }
  });

  test("imported again changes nothing, by address or as text", async () => {
    const version = (await gateway.core.repos.tenants.get(tenant.id))?.configVersion;
    const again = await importing();
    expect(again.diff).toEqual({ added: [], changed: [], removed: [], unchanged: imported.diff.added });
    expect(again.operations.map(({ hash }: Json) => hash)).toEqual(imported.operations.map(({ hash }: Json) => hash));
    expect((await gateway.core.repos.tenants.get(tenant.id))?.configVersion).toBe(version);
    const asText = { openapi: JSON.stringify(document), document_id: "as text", dry_run: true };
    const other = await tenant.client.post("/v1/plugins/import", asText);
    expect(other.diff.added).toHaveLength(imported.diff.added.length - 1);
  });

  test("is listed whole, with what each tool needs", async () => {
    const { tools } = await tenant.client.get("/v1/tools?format=mcp");
    const names = new Set(tools.map(({ name }: Json) => name));
    expect(imported.diff.added.filter((name: string) => !names.has(name))).toEqual([]);
  });
});

describe(`tools of GitHub's document ${verifies("BLIND-2", "API-1", "API-2", "API-4")}`, () => {
  test.each([
    ["GET", "/repos/{owner}/{repo}/issues"],
    ["POST", "/repos/{owner}/{repo}/issues"],
    ["PATCH", "/repos/{owner}/{repo}/issues/{issue_number}"],
    ["PUT", "/repos/{owner}/{repo}/pulls/{pull_number}/merge"],
    ["DELETE", "/repos/{owner}/{repo}/contents/{path}"],
    ["POST", "/repos/{owner}/{repo}/check-runs"],
    ["POST", "/markdown/raw"],
    ["GET", "/search/code"],
    ["POST", "/repos/{owner}/{repo}/releases/{release_id}/assets"],
    ["POST", "/repos/{owner}/{repo}/git/trees"],
    ["PUT", "/orgs/{org}/rulesets/{ruleset_id}"],
    ["GET", "/zen"],
  ])("%s %s is called as it is declared, and its answer is read", async (method, path) => {
    const { name, definition } = imported.operations.find(({ operation }: Json) => operation === `${method} ${path}`);
    const args = generate(definition.parameters);
    backEnd.complaints.length = 0;
    const answer = await tenant.client.post("/v1/tools/invoke", { name, arguments: args });
    expect(backEnd.complaints).toEqual([]);
    const sent = backEnd.requests.at(-1);
    expect(sent?.method).toBe(method);
    const filled = path.replaceAll(/\{(\w+)\}/g, (_whole, placeholder: string) =>
      encodeURIComponent(args[placeholder]),
    );
    expect(sent?.target.split("?")[0]).toBe(filled);
    const { body } = backEnd.replyOf(method, path);
    expect(answer).toMatchObject({ status: "completed" });
    expect(answer.handle === undefined ? answer.content : body?.slice(0, 100)).toBe(
      answer.handle === undefined ? body : answer.content.slice(0, 100),
    );
  });
});
