/**
 * The fences between rooms are lint rules; this suite plants what each must refuse in a scratch copy
 * of the layout and sees that it does, and that it refuses nothing else there.
 */
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "../..");

/** One planted file, and the rules that must report it; an empty list is a neighbour that must pass. */
interface Plant {
  readonly file: string;
  readonly source: string;
  readonly rules: readonly string[];
}

const strictOptions = {
  strict: true,
  module: "nodenext",
  target: "es2024",
  noUncheckedIndexedAccess: true,
  noEmit: true,
  allowImportingTsExtensions: true,
};
const imports = "no-restricted-imports";
const plant = (file: string, source: string, ...rules: readonly string[]): Plant => ({ file, source, rules });
const importing = (file: string, from: string, ...rules: readonly string[]): Plant =>
  plant(file, `export * from ${JSON.stringify(from)};\n`, ...rules);

const core = "packages/core/src/tools";
const forbiddenInCore = [
  "hono",
  "hono/streaming",
  "@hono/zod-openapi",
  "drizzle-orm",
  "drizzle-orm/libsql",
  "@libsql/client",
  "libsql",
  "node:fs",
  "node:fs/promises",
  "node:child_process",
  "@aws-sdk/client-s3",
  "@toolyard/db/database",
  "@toolyard/platform/system-clock",
  "@toolyard/functions/env",
  "../../../db/src/database.ts",
  "../../../platform/src/system-clock.ts",
  "../../../../functions/env.ts",
];

const plants: readonly Plant[] = [
  ...forbiddenInCore.map((from, index) => importing(`${core}/core-${index}.ts`, from, imports)),
  importing(`${core}/core-allowed.ts`, "node:crypto"),
  importing(`${core}/core-allowed.test.ts`, "node:fs"),

  importing("packages/db/src/functions.ts", "@toolyard/functions/compose", imports),
  importing("packages/db/src/platform.ts", "@toolyard/platform/system-clock", imports),
  importing("packages/db/src/core.ts", "@toolyard/core/ids"),
  importing("packages/platform/src/local/functions.ts", "../../../../functions/compose.ts", imports),
  importing("packages/platform/src/local/db.ts", "@toolyard/db/database", imports),
  importing("packages/platform/src/local/disk.ts", "node:fs/promises"),

  importing("packages/platform/src/local/aws.ts", "@aws-sdk/client-s3", imports),
  plant(
    "packages/db/src/lazy-aws.ts",
    `export const load = async (): Promise<unknown> => import("@aws-sdk/client-s3");\n`,
    imports,
  ),
  importing("functions/aws.ts", "@aws-sdk/client-sqs", imports),
  importing("packages/platform/src/aws/aws.ts", "@aws-sdk/client-s3"),

  plant(
    `${core}/environment.ts`,
    "export const home = process.env.HOME;\n",
    "no-process-env",
    "no-restricted-properties",
  ),
  plant("functions/environment.ts", "export const { env } = process;\n", "no-restricted-properties"),
  importing("functions/environment-module.ts", "node:process", imports),
  plant("functions/env.ts", "export const home = process.env.HOME;\n"),
  plant("functions/environment.test.ts", "export const home = process.env.HOME;\n"),

  plant(`${core}/fetch.ts`, `export const answer = fetch("http://127.0.0.1");\n`, "no-restricted-globals"),
  plant("functions/global-fetch.ts", "export const send = globalThis.fetch;\n", "no-restricted-properties"),
  importing("packages/core/src/chat/undici.ts", "undici", imports),
  importing("packages/db/src/repos/undici.ts", "undici", imports),
  importing("packages/db/src/remote-server.ts", "undici"),
  plant("functions/http-client.ts", `export { request } from "node:http";\n`, imports),
  plant("functions/http-server.ts", `export { createServer } from "node:http";\n`),
  plant("packages/core/src/blind/egress.ts", `export * from "undici";\nexport const send = fetch;\n`),
  plant("packages/core/src/blind/definition.ts", "export const send = fetch;\n", "no-restricted-globals"),
  plant("bench/load.ts", `export const answer = fetch("http://127.0.0.1");\n`),

  importing("functions/tables.ts", "@toolyard/db/schema/calls", imports),
  importing("packages/platform/src/memory/tables.ts", "../../../db/src/schema/calls.ts", imports),
  importing("test/e2e/tables.test.ts", "../../packages/db/src/schema/calls.ts", imports),
  importing("packages/db/src/repos/tables.ts", "../schema/calls.ts"),

  importing(`${core}/cycle-a.ts`, "./cycle-b.ts", "no-cycle"),
  importing(`${core}/cycle-b.ts`, "./cycle-a.ts", "no-cycle"),
  plant(`${core}/types-a.ts`, 'import type { B } from "./types-b.ts";\nexport type A = B | 1;\n', "no-cycle"),
  plant(`${core}/types-b.ts`, 'import type { A } from "./types-a.ts";\nexport type B = A[];\n', "no-cycle"),
  plant(`${core}/floating.ts`, "export function start(): void {\n  Promise.resolve();\n}\n", "no-floating-promises"),
  plant(
    `${core}/inexhaustive.ts`,
    `export function name(kind: "a" | "b"): string {\n  switch (kind) {\n    case "a":\n      return kind;\n  }\n  return "";\n}\n`,
    "switch-exhaustiveness-check",
  ),
  plant(`${core}/any.ts`, "export const value: any = 1;\n", "no-explicit-any"),
  plant(`${core}/parsed.ts`, `export const text = (): string => JSON.parse("1");\n`, "no-unsafe-return"),
  plant(`${core}/non-null.ts`, "export const first = (list: string[]): string => list[0]!;\n", "no-non-null-assertion"),
  plant(
    `${core}/type-import.ts`,
    `import { Url } from "node:url";\nexport type Address = Url;\n`,
    "consistent-type-imports",
  ),
  plant(`${core}/mocked.test.ts`, `import { vi } from "vitest";\nvi.mock("./uri.ts");\n`, "no-restricted-properties"),
  plant(
    `${core}/parked.test.ts`,
    `import { expect, test } from "vitest";\ntest.skip("works", () => {\n  expect(1).toBe(1);\n});\n`,
    "no-disabled-tests",
  ),
];

interface Report {
  readonly diagnostics: readonly { readonly code: string; readonly filename: string }[];
}

/** Rule names by file, as oxlint reports them for the whole scratch copy. */
async function lint(directory: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const oxlint = join(root, "node_modules/.bin/oxlint");
  const output = await promisify(execFile)(oxlint, ["--type-aware", "--format", "json"], {
    cwd: directory,
    env: { ...process.env, OXLINT_TSGOLINT_PATH: join(root, "node_modules/.bin/tsgolint") },
    maxBuffer: 16 * 1024 * 1024,
  }).then(
    ({ stdout }) => stdout,
    // Lint findings end the program with 1; the report is on stdout all the same.
    (failed: { readonly stdout: string }) => failed.stdout,
  );
  const report = JSON.parse(output) as Report;
  const byFile = new Map<string, string[]>();
  for (const { code, filename } of report.diagnostics) {
    const rule = /\((?<rule>.+)\)/.exec(code)?.groups?.["rule"] ?? code;
    byFile.set(filename, [...(byFile.get(filename) ?? []), rule]);
  }
  return byFile;
}

describe("the fences between rooms", () => {
  let directory = "";
  let reported: ReadonlyMap<string, readonly string[]> = new Map();

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "toolyard-fences-"));
    await copyFile(join(root, ".oxlintrc.json"), join(directory, ".oxlintrc.json"));
    // The scratch copy has no node_modules, hence no types of Node.
    const compilerOptions = { ...strictOptions, types: [] };
    await writeFile(join(directory, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["**/*.ts"] }));
    await writeFile(join(directory, "node.d.ts"), "declare const process: { readonly env: { HOME?: string } };\n");
    for (const { file, source } of plants) {
      await mkdir(dirname(join(directory, file)), { recursive: true });
      await writeFile(join(directory, file), source);
    }
    reported = await lint(directory);
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  test.for(plants)("$file: $rules", ({ file, rules }) => {
    expect([...new Set(reported.get(file) ?? [])].sort()).toEqual([...rules].sort());
  });
});
