/** What the documents tell people to type and to open is there. */
import { existsSync } from "node:fs";
import { access, constants, glob, readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { scopes } from "@toolyard/core/callers/caller";
import * as z from "zod";
import { beforeAll, describe, expect, test } from "vitest";
import { createApiKey } from "../../functions/http/routes/api-keys.ts";
import { createIssuer } from "../../functions/http/routes/issuers.ts";
import { createProvider } from "../../functions/http/routes/providers.ts";
import type { RouteModule } from "../../functions/http/define-route.ts";

const root = resolve(import.meta.dirname, "../..");

interface Document {
  readonly file: string;
  readonly text: string;
}

const documents: Document[] = [];
let scripts: readonly string[];

beforeAll(async () => {
  for (const pattern of ["*.md", "docs/**/*.md"]) {
    for await (const file of glob(pattern, { cwd: root })) {
      documents.push({ file, text: await readFile(join(root, file), "utf8") });
    }
  }
  scripts = Object.keys(JSON.parse(await readFile(join(root, "package.json"), "utf8")).scripts);
});

/** The first group of every match, with the file it is in. */
function found(pattern: RegExp): readonly (readonly [file: string, what: string])[] {
  return documents.flatMap(({ file, text }) =>
    [...text.matchAll(pattern)].map(([, what = ""]) => [file, what] as const),
  );
}

describe("the documents", () => {
  test("call the gateway's address and the key as the first page does", () => {
    const addresses = found(/\$(\w+)\/(?:v1|api|mcp)\b/g);
    expect(addresses.length).toBeGreaterThan(60);
    expect(addresses.filter(([, name]) => name !== "BASE")).toEqual([]);
    expect(found(/(curl [^\n]*127\.0\.0\.1:8787)/g)).toEqual([]);
    // Pages on deploying and on access have keys of more than one kind, and say where they come from.
    const keys = found(/Bearer \$(\w+)/gi);
    expect(keys.filter(([, name]) => !["KEY", "ADMIN_KEY", "OPERATOR", "TOKEN"].includes(name))).toEqual([]);
  });

  test("name only scripts of package.json", () => {
    const named = found(/\bnpm run ([a-z][\w:-]*)/g);
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter(([, script]) => !scripts.includes(script))).toEqual([]);
  });

  test("name only programs of `.ci/` that can be run", async () => {
    const named = found(/(?<![\w/])(\.ci\/\w+)/g);
    expect(named.length).toBeGreaterThan(2);
    for (const [, program] of named) await access(join(root, program), constants.X_OK);
  });

  test("link only to files that are there", () => {
    const links = found(/\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)/g);
    expect(links.length).toBeGreaterThan(100);
    expect(links.filter(([file, to]) => !existsSync(join(root, dirname(file), to)))).toEqual([]);
  });
});

/** Whoever reads the page of a thing must find all that it is made of: there is no other. */
describe("the page", () => {
  const fieldsOf = ({ request: { body = z.never() } }: RouteModule): readonly string[] =>
    Object.keys(z.toJSONSchema(body, { io: "input" }).properties ?? {});

  test.each([
    ["docs/models.md", "a provider", fieldsOf(createProvider)],
    ["docs/access.md", "a key", fieldsOf(createApiKey)],
    ["docs/access.md", "an issuer", fieldsOf(createIssuer)],
    ["docs/access.md", "the scopes", scopes],
  ])("%s says every part of %s", (page, _thing, parts) => {
    const { text = "" } = documents.find(({ file }) => file === page) ?? {};
    // In the first column of a table, by itself, beside another one or with what is in it.
    const said = [...text.matchAll(/^\| ([^|]+) \|/gm)].flatMap(([, cell = ""]) => cell.match(/\w+/g) ?? []);
    expect(parts.length).toBeGreaterThan(4);
    expect(parts.filter((part) => !said.includes(part))).toEqual([]);
  });
});

test("the release checklist has one command a line, numbered through", () => {
  const { text } = documents.find(({ file }) => file === "docs/release-checklist.md") ?? { text: "" };
  const rows = text.split("\n").filter((line) => /^\| \d/.test(line));
  expect(rows.map((row) => Number(/^\| (\d+) /.exec(row)?.[1]))).toEqual(rows.map((_row, at) => at + 1));
  for (const row of rows) expect(row).toMatch(/^\| \d+ \| [^|`]+ \| `[^`]+` \|$/);
});
