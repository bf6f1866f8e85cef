/** What the documents show of requests is taken: each address by a route, each body and query by its validators. */
import { glob, readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { catalog } from "@toolyard/core/errors/catalog";
import { tenantSettingsSchema } from "@toolyard/core/tenants/settings";
import * as z from "zod";
import { describe, expect, test } from "vitest";
import type { RouteModule } from "../../functions/http/define-route.ts";
import { routes } from "../../functions/http/routes/index.ts";

const root = resolve(import.meta.dirname, "../..");

interface Document {
  readonly file: string;
  readonly text: string;
}

/** Decisions keep what was so when they were taken, and the table of requirements is made. */
async function readDocuments(): Promise<Document[]> {
  const read: Document[] = [];
  for (const pattern of ["*.md", "docs/**/*.md"]) {
    for await (const file of glob(pattern, { cwd: root })) {
      if (file.includes("decisions/") || file === "docs/requirements.md") continue;
      read.push({ file, text: await readFile(join(root, file), "utf8") });
    }
  }
  return read;
}

const documents = await readDocuments();

interface Request {
  readonly file: string;
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  /** Absent where it comes from a file, a pipe or a variable. */
  readonly body: string | undefined;
}

const blocks = ({ text }: Document, language: string): readonly string[] =>
  [...text.matchAll(new RegExp(`^[ \\t]*\`\`\`(?:${language})\\n([^]*?)^[ \\t]*\`\`\``, "gm"))].map(
    ([, block = ""]) => block,
  );

/** A command ends with its line, a pipe or a bracket; what stands in quotes is passed over. */
const command = /\bcurl (?:\\\n|"[^"]*"|'[^']*'|\$\([^)]*\)|[^'"\n|)])*/g;
const address = /(?:\$BASE|<url>|https?:\/\/127\.0\.0\.1:8787)(\/[^\s"'\\]*)/;
const sent = /(?:-d|--json|--data-binary)\s+(?:((?:'[^']*'|\$\w+|\$\([^)]*\))+)|\S+)/;

/** As a shell puts it together; what it fills in is a word. */
function unquote(quoted: string): string {
  return quoted.replaceAll(/'([^']*)'|\$\w+|\$\([^)]*\)/g, (_whole, text: string | undefined) => text ?? "word");
}

function toRequest(file: string, text: string): Request | undefined {
  const [path, query = ""] = address.exec(text)?.[1]?.split("?") ?? [];
  if (path === undefined) return undefined;
  const data = sent.exec(text);
  const method = /-X\s*(\w+)/.exec(text)?.[1] ?? (data === null ? "GET" : "POST");
  const fields = Object.fromEntries(new URLSearchParams(query));
  return {
    file,
    method: method.toLowerCase(),
    path,
    query: fields,
    body: data?.[1] === undefined ? undefined : unquote(data[1]),
  };
}

const requests = documents.flatMap((document) =>
  blocks(document, "sh|bash").flatMap((block) =>
    [...block.matchAll(command)].flatMap(([text]) => toRequest(document.file, text) ?? []),
  ),
);

const all: readonly RouteModule[] = Object.values(routes);

/** A path that is given whole comes before one that a pattern describes. */
function routeOf(method: string, path: string): RouteModule | undefined {
  const fitting = all.filter(
    (route) =>
      route.method === method &&
      new RegExp(
        `^${route.path
          .replaceAll(".", "\\.")
          .replaceAll(/\{\w+\+\}/g, ".+")
          .replaceAll(/\{\w+\}/g, "[^/]+")}$`,
      ).test(path),
  );
  const holes = ({ path: pattern }: RouteModule): number => pattern.split("{").length;
  return fitting.sort((a, b) => holes(a) - holes(b))[0];
}

const words = new Set(documents.flatMap(({ text }) => text.match(/\w+/g) ?? []));

/** What a validator has against a value. */
const faults = (schema: z.ZodType, value: unknown): readonly string[] =>
  schema.safeParse(value).error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`) ?? [];

describe("the requests that documents show", () => {
  test("go to routes that are there, with parameters that those have", () => {
    expect(requests.length).toBeGreaterThan(60);
    const wrong = requests.filter(({ method, path, query }) => {
      const route = routeOf(method, path.replace("$1", "list"));
      return route === undefined || faults(route.request.query ?? z.strictObject({}), query).length > 0;
    });
    expect(wrong).toEqual([]);
  });

  test("have bodies that are taken", () => {
    const shown = requests.flatMap(({ body, ...request }) => (body === undefined ? [] : [{ ...request, body }]));
    expect(shown.length).toBeGreaterThan(40);
    const wrong = shown.flatMap(({ file, method, path, body }) => {
      const { body: schema = z.unknown() } = routeOf(method, path)?.request ?? {};
      return faults(schema, JSON.parse(body)).map((fault) => `${file}: ${method} ${path}: ${fault}`);
    });
    expect(wrong).toEqual([]);
  });

  test("that stand in sentences and tables go to routes that are there", () => {
    const named = documents.flatMap(({ file, text }) =>
      [
        ...text.matchAll(
          /\b(GET|POST|PUT|PATCH|DELETE) (\/(?:v1|api|mcp|admin_api|health|plugin-callback)[^\s`"')]*)/g,
        ),
      ].map(([, method = "", path = ""]) => ({
        file,
        method: method.toLowerCase(),
        path: (path.split("?")[0] ?? "").replaceAll("…", "x").replace(/[.,:;]$/, ""),
      })),
    );
    expect(named.length).toBeGreaterThan(150);
    expect(named.filter(({ method, path }) => routeOf(method, path) === undefined)).toEqual([]);
  });
});

describe("some page says what there is", () => {
  test.each([
    ["code of an error", Object.keys(catalog)],
    ["setting of a tenant", Object.keys(tenantSettingsSchema.shape)],
  ])("every %s", (_kind, names) => {
    expect(names.length).toBeGreaterThan(40);
    expect(names.filter((name) => !words.has(name))).toEqual([]);
  });
});

test("tables of errors and settings name such as there are", () => {
  const known = { code: new Set(Object.keys(catalog)), setting: new Set(Object.keys(tenantSettingsSchema.shape)) };
  const rows = documents.flatMap(({ file, text }) =>
    [...text.matchAll(/^\| (code|setting)s?(?: of the tenant)? \|.*\n\|[-| ]+\n((?:\|.*\n)+)/gm)].flatMap(
      ([, kind = "", body = ""]) =>
        [...body.matchAll(/^\| ([^|]*) \|/gm)].flatMap(([, cell = ""]) =>
          [...cell.matchAll(/`([a-z]\w+)`/g)].map(([, name = ""]) => ({ file, kind, name })),
        ),
    ),
  );
  expect(rows.length).toBeGreaterThan(90);
  expect(rows.filter(({ kind, name }) => !known[kind === "code" ? "code" : "setting"].has(name))).toEqual([]);
});

test("objects that documents show in JSON are JSON", () => {
  const shown = documents.flatMap((document) =>
    blocks(document, "json")
      // Parts of one begin with a name, and what is left out is an ellipsis outside of a text.
      .filter((block) => /^\s*[{[]/.test(block))
      .map((block) => ({ file: document.file, block })),
  );
  expect(shown.length).toBeGreaterThan(10);
  for (const { file, block } of shown) expect(() => JSON.parse(block), file).not.toThrow();
});

/** As GitHub makes them. */
function toAnchor(heading: string): string {
  return heading
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .replaceAll(/\s/g, "-");
}

test("links lead to headings that are there", () => {
  const anchors = new Map(
    documents.map(({ file, text }) => {
      const prose = text.replaceAll(/^[ \t]*```[^]*?^[ \t]*```/gm, "");
      return [file, [...prose.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => toAnchor(heading))] as const;
    }),
  );
  const links = documents.flatMap(({ file, text }) =>
    [...text.matchAll(/\]\((?!\w+:)([^)#\s]*)#([^)]+)\)/g)].map(([, to = "", anchor = ""]) => ({ file, to, anchor })),
  );
  expect(links.length).toBeGreaterThan(60);
  expect(
    links.filter(({ file, to, anchor }) => {
      const page = to === "" ? file : join(dirname(file), to);
      return anchors.get(page)?.includes(anchor) !== true;
    }),
  ).toEqual([]);
});
